"""Where tables may lie: object stores that speak S3, and catalogs."""
