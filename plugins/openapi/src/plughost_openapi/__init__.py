"""OpenAPI 3.1 of all that a plughost serves, and Swagger UI to try it out."""
