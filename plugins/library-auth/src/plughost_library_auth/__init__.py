"""Library service of plughost: signed role tokens over HTTP Basic, and the resources they open."""
