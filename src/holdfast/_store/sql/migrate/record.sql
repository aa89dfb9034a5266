-- Functions are born executable by everybody: not even until the grants follow.
REVOKE ALL ON ALL ROUTINES IN SCHEMA holdfast FROM PUBLIC;
INSERT INTO holdfast.migration (number, name, checksum) VALUES ({number}, '{name}', '{checksum}');
