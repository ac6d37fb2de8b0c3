"""Types and schemas of /v1 requests and answers, from which the OpenAPI document is made."""
