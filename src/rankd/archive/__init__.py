"""What is kept outside of the ranks and the ledger: objects in a folder or in object storage."""
