"""Between the rules and the ledger: requests are checked, gathered, committed together and answered."""
