"""A party's data: public schema, private table, encoded rows."""
