"""From a request to a job: what is to run is planned, checked, published and handed over exactly once."""
