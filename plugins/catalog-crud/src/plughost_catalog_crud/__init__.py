"""The product catalog as generated CRUD: paging, sorting, filters, HAL and ETags."""
