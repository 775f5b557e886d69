"""What runs inside one work item: core code as sequential loops over scalars and memory of its own."""
