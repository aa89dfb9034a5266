-- On Citus, everything stays on the server that is migrated, as the tables do: Citus cannot distribute tables whose partitions are
-- partitioned. Otherwise it would copy types and functions to all nodes, which then have no tables for them.
DO $$ BEGIN
    PERFORM set_config(name, 'off', true) FROM unnest(ARRAY['citus.enable_ddl_propagation', 'citus.enable_schema_based_sharding']) AS name
    WHERE current_setting(name, true) IS NOT NULL;
END $$;
