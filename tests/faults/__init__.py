"""Jobs between a real Kafka broker and a model that counts, while workers, TaskManagers and JobManagers die."""
