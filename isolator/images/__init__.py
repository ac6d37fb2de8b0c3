"""Images as registries and archives have them: names, logins, manifests, configurations and layers."""
