"""Events and standings for other systems, through topics of Kafka."""
