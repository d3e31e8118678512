//! Built-in functions that do more than compute, by name.
//!
//! The list is PostgreSQL 15's, with names of earlier and later versions and of the usual extensions. Functions of the
//! database's own can do the same unseen.

/// The deed of a function besides returning a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SideEffect {
    /// `set_config`.
    SetConfig,
    /// Keeps a session-level advisory lock.
    AdvisoryLock,
    /// Gives one back.
    AdvisoryUnlock,
    /// Gives all back.
    AdvisoryUnlockAll,
    /// Advances or sets a sequence.
    AdvanceSequence,
    /// Reads what an earlier `nextval` left in the session.
    ReadSequence,
    /// Sends a notification.
    Notify,
    /// Writes, or takes a lock or a transaction number: not for a standby.
    Write,
    /// Acts on the server or reads its files.
    Admin,
    /// Keeps state in the session, or runs text.
    Opaque,
    /// Acts on the server and keeps state in the session.
    OpaqueAdmin,
}

use SideEffect::{
    AdvanceSequence, AdvisoryLock, AdvisoryUnlock, AdvisoryUnlockAll, Notify, Opaque, OpaqueAdmin, ReadSequence,
    SetConfig, Write,
};

/// By name, sorted.
const FUNCTIONS: &[(&str, SideEffect)] = &[
    ("connectby", Opaque),
    ("crosstab", Opaque),
    ("currval", ReadSequence),
    ("cursor_to_xml", Opaque),
    ("cursor_to_xmlschema", Opaque),
    ("database_to_xml", Opaque),
    ("database_to_xml_and_xmlschema", Opaque),
    ("database_to_xmlschema", Opaque),
    ("gin_clean_pending_list", Write),
    ("lastval", ReadSequence),
    ("loread", Write),
    ("lowrite", Write),
    ("nextval", AdvanceSequence),
    ("pg_advisory_lock", AdvisoryLock),
    ("pg_advisory_lock_shared", AdvisoryLock),
    ("pg_advisory_unlock", AdvisoryUnlock),
    ("pg_advisory_unlock_all", AdvisoryUnlockAll),
    ("pg_advisory_unlock_shared", AdvisoryUnlock),
    ("pg_advisory_xact_lock", Write),
    ("pg_advisory_xact_lock_shared", Write),
    ("pg_backup_start", OpaqueAdmin),
    ("pg_backup_stop", OpaqueAdmin),
    ("pg_current_xact_id", Write),
    ("pg_export_snapshot", Write),
    ("pg_nextoid", AdvanceSequence),
    ("pg_notify", Notify),
    ("pg_replication_origin_session_reset", OpaqueAdmin),
    ("pg_replication_origin_session_setup", OpaqueAdmin),
    ("pg_replication_origin_xact_reset", OpaqueAdmin),
    ("pg_replication_origin_xact_setup", OpaqueAdmin),
    ("pg_start_backup", OpaqueAdmin),
    ("pg_stop_backup", OpaqueAdmin),
    ("pg_try_advisory_lock", AdvisoryLock),
    ("pg_try_advisory_lock_shared", AdvisoryLock),
    ("pg_try_advisory_xact_lock", Write),
    ("pg_try_advisory_xact_lock_shared", Write),
    ("postgres_fdw_disconnect", Opaque),
    ("postgres_fdw_disconnect_all", Opaque),
    ("query_to_xml", Opaque),
    ("query_to_xml_and_xmlschema", Opaque),
    ("query_to_xmlschema", Opaque),
    ("schema_to_xml", Opaque),
    ("schema_to_xml_and_xmlschema", Opaque),
    ("schema_to_xmlschema", Opaque),
    ("set_config", SetConfig),
    ("set_limit", Opaque),
    ("setseed", Opaque),
    ("setval", AdvanceSequence),
    ("table_to_xml", Opaque),
    ("table_to_xml_and_xmlschema", Opaque),
    ("table_to_xmlschema", Opaque),
    ("ts_rewrite", Opaque),
    ("ts_stat", Opaque),
    ("txid_current", Write),
    ("xpath_table", Opaque),
];

/// Families by their beginning; a whole name above comes first.
const FAMILIES: &[(&str, SideEffect)] = &[
    ("brin_desummarize", Write),
    ("brin_summarize", Write),
    ("crosstab", Opaque),
    ("dblink", Opaque),
    ("heap_force_", SideEffect::Admin),
    ("lo_", Write),
    ("pg_cancel_backend", SideEffect::Admin),
    ("pg_copy_logical_replication_slot", SideEffect::Admin),
    ("pg_copy_physical_replication_slot", SideEffect::Admin),
    ("pg_create_", SideEffect::Admin),
    ("pg_drop_replication_slot", SideEffect::Admin),
    ("pg_file_", SideEffect::Admin),
    ("pg_import_system_collations", SideEffect::Admin),
    ("pg_log_backend_memory_contexts", SideEffect::Admin),
    ("pg_log_standby_snapshot", SideEffect::Admin),
    ("pg_logdir_ls", SideEffect::Admin),
    ("pg_logical_emit_message", Write),
    ("pg_logical_slot_get_", SideEffect::Admin),
    ("pg_ls_", SideEffect::Admin),
    ("pg_prewarm", SideEffect::Admin),
    ("pg_promote", SideEffect::Admin),
    ("pg_read_", SideEffect::Admin),
    ("pg_reload_conf", SideEffect::Admin),
    ("pg_replication_origin_", SideEffect::Admin),
    ("pg_replication_slot_advance", SideEffect::Admin),
    ("pg_restore_", Write),
    ("pg_rotate_logfile", SideEffect::Admin),
    ("pg_set_", Write),
    ("pg_stat_file", SideEffect::Admin),
    ("pg_stat_reset", SideEffect::Admin),
    ("pg_stat_statements_reset", SideEffect::Admin),
    ("pg_switch_", SideEffect::Admin),
    ("pg_sync_replication_slots", SideEffect::Admin),
    ("pg_terminate_backend", SideEffect::Admin),
    ("pg_truncate_", SideEffect::Admin),
    ("pg_wal_replay_pause", SideEffect::Admin),
    ("pg_wal_replay_resume", SideEffect::Admin),
];

/// Functions of a family that only read.
const HARMLESS: &[&str] =
    &["lo_get", "pg_read_all_data", "pg_replication_origin_oid", "pg_replication_origin_progress"];

/// The side effect of the function `name`, in any schema. `name` is its last part, as [`name`](super::name) has it.
pub fn side_effect(name: &[u8]) -> Option<SideEffect> {
    if let Ok(at) = FUNCTIONS.binary_search_by(|row| row.0.as_bytes().cmp(name)) {
        return Some(FUNCTIONS[at].1);
    }
    let family = FAMILIES.iter().find(|row| name.starts_with(row.0.as_bytes()))?;
    (!HARMLESS.iter().any(|harmless| harmless.as_bytes() == name)).then_some(family.1)
}

impl SideEffect {
    /// Whether a statement with it is one for administrators.
    pub const fn is_admin(self) -> bool {
        matches!(self, Self::Admin | Self::OpaqueAdmin)
    }

    /// Whether a statement with it may run wherever a SELECT may.
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::ReadSequence | Self::SetConfig)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_its_members_are_found() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.0 < b.0));
        for &(name, effect) in FUNCTIONS {
            assert_eq!(side_effect(name.as_bytes()), Some(effect), "{name}");
        }
    }

    #[test]
    fn families_have_their_exceptions() {
        for (name, effect) in [
            ("lo_unlink", Some(Write)),
            ("lo_get", None),
            ("dblink_connect", Some(Opaque)),
            ("crosstab3", Some(Opaque)),
            ("pg_terminate_backend", Some(SideEffect::Admin)),
            ("pg_read_file", Some(SideEffect::Admin)),
            ("pg_create_restore_point", Some(SideEffect::Admin)),
            ("pg_stat_get_activity", None),
            ("pg_size_pretty", None),
            ("pg_advisory", None),
            ("count", None),
            ("low", None),
            ("", None),
        ] {
            assert_eq!(side_effect(name.as_bytes()), effect, "{name}");
        }
    }
}
