-- By default every role may execute a new function: revoked at once, before the grants are set.
REVOKE ALL ON ALL ROUTINES IN SCHEMA holdfast FROM PUBLIC;
INSERT INTO holdfast.migration (number, name, checksum) VALUES ({number}, '{name}', '{checksum}');
