"""The connector's errors, its Spark session and SQL as text serve all of its parts."""
