"""Types of /v1 requests and answers, and the OpenAPI document made from them."""
