"""The ledger on Apache Kafka."""

from rankd.ledger.kafka.ledger import KafkaLedger
from rankd.ledger.kafka.topics import migrate

__all__ = ["KafkaLedger", "migrate"]
