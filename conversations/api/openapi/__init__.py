"""OpenAPI at `/openapi.json`: the routes and bodies as the code has them, the answers as the contract has them."""
