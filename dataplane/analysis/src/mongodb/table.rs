//! Every command that a client may send to a server, with its kind and the place of its namespace.
//!
//! Source: "Database Commands" of MongoDB's manual, versions 2.2 to 8.2, as those of all versions are still sent; classes are those of
//! the manual's sections, except for the class dangerous, whose reasons are in [`Class::Dangerous`]. Commands between servers begin with
//! `_` and are in no row: an unknown command is administrative.

use super::class::{Class, Target};

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name. Case counts; a command that servers register in two forms, such as dbStats and dbstats, has two rows.
    pub name: &'static str,
    /// Its kind, without a look at its fields.
    pub class: Class,
    /// Where it names its collection.
    pub target: Target,
}

const fn row(name: &'static str, class: Class, target: Target) -> Row {
    Row { name, class, target }
}

/// The row of a command by its name; `None`: the table does not have it.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static Row> {
    COMMANDS.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok().map(|index| &COMMANDS[index])
}

/// The row of a command whose name differs from this one in case alone. MongoDB knows no such command, but some servers compare names without
/// case: there it would be that command, unseen by every rule about it.
pub fn lookup_in_another_case(name: &[u8]) -> Option<&'static Row> {
    match lookup(name) {
        Some(_) => None,
        None => COMMANDS.iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name)),
    }
}

/// All commands, in the order of their names.
pub const COMMANDS: &[Row] = &[
    row("$eval", Class::Dangerous, Target::None),
    row("abortMoveCollection", Class::Admin, Target::FullName),
    row("abortReshardCollection", Class::Admin, Target::FullName),
    row("abortTransaction", Class::Transaction, Target::None),
    row("abortUnshardCollection", Class::Admin, Target::FullName),
    row("addShard", Class::Admin, Target::None),
    row("addShardToZone", Class::Admin, Target::None),
    row("addshard", Class::Admin, Target::None),
    row("aggregate", Class::Read, Target::Collection),
    row("analyzeShardKey", Class::Admin, Target::FullName),
    row("appendOplogNote", Class::Admin, Target::None),
    row("applyOps", Class::Dangerous, Target::None),
    row("authenticate", Class::Connection, Target::None),
    row("availableQueryOptions", Class::Admin, Target::None),
    row("availablequeryoptions", Class::Admin, Target::None),
    row("balancerCollectionStatus", Class::Admin, Target::FullName),
    row("balancerStart", Class::Admin, Target::None),
    row("balancerStatus", Class::Admin, Target::None),
    row("balancerStop", Class::Admin, Target::None),
    row("buildInfo", Class::Connection, Target::None),
    row("buildinfo", Class::Connection, Target::None),
    row("bulkWrite", Class::Write, Target::NsInfo),
    row("captrunc", Class::Dangerous, Target::Collection),
    row("checkMetadataConsistency", Class::Admin, Target::Collection),
    row("checkShardingIndex", Class::Admin, Target::FullName),
    row("cleanupOrphaned", Class::Admin, Target::FullName),
    row("cleanupStructuredEncryptionData", Class::Ddl, Target::Collection),
    row("clearJumboFlag", Class::Admin, Target::FullName),
    row("clone", Class::Dangerous, Target::None),
    row("cloneCollection", Class::Ddl, Target::FullName),
    row("cloneCollectionAsCapped", Class::Ddl, Target::Collection),
    row("closeAllDatabases", Class::Dangerous, Target::None),
    row("collMod", Class::Ddl, Target::Collection),
    row("collStats", Class::Read, Target::Collection),
    row("collstats", Class::Read, Target::Collection),
    row("commitReshardCollection", Class::Admin, Target::FullName),
    row("commitTransaction", Class::Transaction, Target::None),
    row("compact", Class::Ddl, Target::Collection),
    row("compactStructuredEncryptionData", Class::Ddl, Target::Collection),
    row("configureCollectionBalancing", Class::Admin, Target::FullName),
    row("configureFailPoint", Class::Dangerous, Target::None),
    row("configureQueryAnalyzer", Class::Admin, Target::FullName),
    row("connPoolStats", Class::Admin, Target::None),
    row("connPoolSync", Class::Admin, Target::None),
    row("connectionStatus", Class::Connection, Target::None),
    row("connpoolsync", Class::Admin, Target::None),
    row("convertToCapped", Class::Ddl, Target::Collection),
    row("coordinateCommitTransaction", Class::Dangerous, Target::None),
    row("copydb", Class::Dangerous, Target::None),
    row("copydbSaslStart", Class::Dangerous, Target::None),
    row("copydbgetnonce", Class::Dangerous, Target::None),
    row("count", Class::Read, Target::Collection),
    row("cpuload", Class::Dangerous, Target::None),
    row("create", Class::Ddl, Target::Collection),
    row("createIndexes", Class::Ddl, Target::Collection),
    row("createRole", Class::Admin, Target::None),
    row("createSearchIndexes", Class::Ddl, Target::Collection),
    row("createUser", Class::Admin, Target::None),
    row("currentOp", Class::Admin, Target::None),
    row("cursorInfo", Class::Admin, Target::None),
    row("dataSize", Class::Read, Target::FullName),
    row("datasize", Class::Read, Target::FullName),
    row("dbHash", Class::Read, Target::None),
    row("dbStats", Class::Read, Target::None),
    row("dbhash", Class::Read, Target::None),
    row("dbstats", Class::Read, Target::None),
    row("delete", Class::Write, Target::Collection),
    row("deleteIndexes", Class::Ddl, Target::Collection),
    row("diagLogging", Class::Admin, Target::None),
    row("distinct", Class::Read, Target::Collection),
    row("doTxn", Class::Dangerous, Target::None),
    row("driverOIDTest", Class::Admin, Target::None),
    row("drop", Class::Ddl, Target::Collection),
    row("dropAllRolesFromDatabase", Class::Admin, Target::None),
    row("dropAllUsersFromDatabase", Class::Admin, Target::None),
    row("dropConnections", Class::Dangerous, Target::None),
    row("dropDatabase", Class::Ddl, Target::None),
    row("dropIndexes", Class::Ddl, Target::Collection),
    row("dropRole", Class::Admin, Target::None),
    row("dropSearchIndex", Class::Ddl, Target::Collection),
    row("dropUser", Class::Admin, Target::None),
    row("echo", Class::Dangerous, Target::None),
    row("emptycapped", Class::Dangerous, Target::Collection),
    row("enableSharding", Class::Admin, Target::Database),
    row("enablesharding", Class::Admin, Target::Database),
    row("endSessions", Class::Session, Target::None),
    row("eval", Class::Dangerous, Target::None),
    row("explain", Class::Read, Target::Inner),
    row("faultinjectioncluster", Class::Dangerous, Target::None),
    row("features", Class::Connection, Target::None),
    row("filemd5", Class::Read, Target::Root),
    row("find", Class::Read, Target::Collection),
    row("findAndModify", Class::Write, Target::Collection),
    row("findandmodify", Class::Write, Target::Collection),
    row("flushRouterConfig", Class::Admin, Target::None),
    row("flushrouterconfig", Class::Admin, Target::None),
    row("forceerror", Class::Dangerous, Target::None),
    row("fsync", Class::Dangerous, Target::None),
    row("fsyncUnlock", Class::Admin, Target::None),
    row("geoNear", Class::Read, Target::Collection),
    row("geoSearch", Class::Read, Target::Collection),
    row("getAuditConfig", Class::Admin, Target::None),
    row("getClusterParameter", Class::Admin, Target::None),
    row("getCmdLineOpts", Class::Admin, Target::None),
    row("getDefaultRWConcern", Class::Admin, Target::None),
    row("getDiagnosticData", Class::Admin, Target::None),
    row("getFreeMonitoringStatus", Class::Admin, Target::None),
    row("getLastError", Class::Connection, Target::None),
    row("getLog", Class::Admin, Target::None),
    row("getMore", Class::Session, Target::Field),
    row("getParameter", Class::Admin, Target::None),
    row("getPrevError", Class::Connection, Target::None),
    row("getShardMap", Class::Admin, Target::None),
    row("getShardVersion", Class::Admin, Target::FullName),
    row("getlasterror", Class::Connection, Target::None),
    row("getnonce", Class::Connection, Target::None),
    row("getpreverror", Class::Connection, Target::None),
    row("getshardversion", Class::Admin, Target::FullName),
    row("godinsert", Class::Dangerous, Target::Collection),
    row("grantPrivilegesToRole", Class::Admin, Target::None),
    row("grantRolesToRole", Class::Admin, Target::None),
    row("grantRolesToUser", Class::Admin, Target::None),
    row("group", Class::Dangerous, Target::Ns),
    row("hello", Class::Connection, Target::None),
    row("hostInfo", Class::Admin, Target::None),
    row("indexStats", Class::Read, Target::Collection),
    row("insert", Class::Write, Target::Collection),
    row("internalRenameIfOptionsAndIndexesMatch", Class::Dangerous, Target::None),
    row("invalidateUserCache", Class::Admin, Target::None),
    row("isMaster", Class::Connection, Target::None),
    row("isdbgrid", Class::Connection, Target::None),
    row("ismaster", Class::Connection, Target::None),
    row("journalLatencyTest", Class::Dangerous, Target::None),
    row("killAllSessions", Class::Admin, Target::None),
    row("killAllSessionsByPattern", Class::Admin, Target::None),
    row("killCursors", Class::Session, Target::Collection),
    row("killOp", Class::Admin, Target::None),
    row("killSessions", Class::Admin, Target::None),
    row("listCollections", Class::Read, Target::None),
    row("listCommands", Class::Connection, Target::None),
    row("listDatabases", Class::Read, Target::None),
    row("listIndexes", Class::Read, Target::Collection),
    row("listSearchIndexes", Class::Read, Target::Collection),
    row("listShards", Class::Admin, Target::None),
    row("listshards", Class::Admin, Target::None),
    row("lockInfo", Class::Admin, Target::None),
    row("lockTest", Class::Dangerous, Target::None),
    row("logApplicationMessage", Class::Admin, Target::None),
    row("logMessage", Class::Admin, Target::None),
    row("logRotate", Class::Admin, Target::None),
    row("logout", Class::Connection, Target::None),
    row("mapReduce", Class::Write, Target::Collection),
    row("mapreduce", Class::Write, Target::Collection),
    row("medianKey", Class::Admin, Target::FullName),
    row("mergeChunks", Class::Admin, Target::FullName),
    row("moveChunk", Class::Admin, Target::FullName),
    row("moveCollection", Class::Admin, Target::FullName),
    row("movePrimary", Class::Admin, Target::Database),
    row("moveRange", Class::Admin, Target::FullName),
    row("movechunk", Class::Admin, Target::FullName),
    row("moveprimary", Class::Admin, Target::Database),
    row("netstat", Class::Admin, Target::None),
    row("oidcListKeys", Class::Admin, Target::None),
    row("oidcRefreshKeys", Class::Admin, Target::None),
    row("parallelCollectionScan", Class::Read, Target::Collection),
    row("ping", Class::Connection, Target::None),
    row("planCacheClear", Class::Admin, Target::Collection),
    row("planCacheClearFilters", Class::Admin, Target::Collection),
    row("planCacheListFilters", Class::Admin, Target::Collection),
    row("planCacheListPlans", Class::Admin, Target::None),
    row("planCacheListQueryShapes", Class::Admin, Target::None),
    row("planCacheSetFilter", Class::Admin, Target::Collection),
    row("prepareTransaction", Class::Dangerous, Target::None),
    row("profile", Class::Admin, Target::None),
    row("reIndex", Class::Ddl, Target::Collection),
    row("reapLogicalSessionCacheNow", Class::Dangerous, Target::None),
    row("refineCollectionShardKey", Class::Admin, Target::FullName),
    row("refreshLogicalSessionCacheNow", Class::Dangerous, Target::None),
    row("refreshSessions", Class::Session, Target::None),
    row("removeQuerySettings", Class::Admin, Target::None),
    row("removeShard", Class::Admin, Target::None),
    row("removeShardFromZone", Class::Admin, Target::None),
    row("removeshard", Class::Admin, Target::None),
    row("renameCollection", Class::Ddl, Target::FullName),
    row("repairCursor", Class::Dangerous, Target::None),
    row("repairDatabase", Class::Ddl, Target::None),
    row("replSetAbortPrimaryCatchUp", Class::Dangerous, Target::None),
    row("replSetElect", Class::Dangerous, Target::None),
    row("replSetFreeze", Class::Dangerous, Target::None),
    row("replSetFresh", Class::Dangerous, Target::None),
    row("replSetGetConfig", Class::Admin, Target::None),
    row("replSetGetRBID", Class::Admin, Target::None),
    row("replSetGetStatus", Class::Admin, Target::None),
    row("replSetHeartbeat", Class::Dangerous, Target::None),
    row("replSetInitiate", Class::Dangerous, Target::None),
    row("replSetMaintenance", Class::Dangerous, Target::None),
    row("replSetReconfig", Class::Dangerous, Target::None),
    row("replSetRequestVotes", Class::Dangerous, Target::None),
    row("replSetResizeOplog", Class::Dangerous, Target::None),
    row("replSetStepDown", Class::Dangerous, Target::None),
    row("replSetStepUp", Class::Dangerous, Target::None),
    row("replSetSyncFrom", Class::Dangerous, Target::None),
    row("replSetTest", Class::Dangerous, Target::None),
    row("replSetTestEgress", Class::Dangerous, Target::None),
    row("replSetUpdatePosition", Class::Dangerous, Target::None),
    row("resetError", Class::Connection, Target::None),
    row("reseterror", Class::Connection, Target::None),
    row("reshardCollection", Class::Admin, Target::FullName),
    row("resync", Class::Dangerous, Target::None),
    row("revokePrivilegesFromRole", Class::Admin, Target::None),
    row("revokeRolesFromRole", Class::Admin, Target::None),
    row("revokeRolesFromUser", Class::Admin, Target::None),
    row("rolesInfo", Class::Admin, Target::None),
    row("rotateCertificates", Class::Admin, Target::None),
    row("rotateFTDC", Class::Dangerous, Target::None),
    row("saslContinue", Class::Connection, Target::None),
    row("saslStart", Class::Connection, Target::None),
    row("serverStatus", Class::Admin, Target::None),
    row("setAllowMigrations", Class::Dangerous, Target::Collection),
    row("setAuditConfig", Class::Admin, Target::None),
    row("setClusterParameter", Class::Admin, Target::None),
    row("setCommittedSnapshot", Class::Dangerous, Target::None),
    row("setDefaultRWConcern", Class::Admin, Target::None),
    row("setFeatureCompatibilityVersion", Class::Admin, Target::None),
    row("setFreeMonitoring", Class::Admin, Target::None),
    row("setIndexCommitQuorum", Class::Admin, Target::None),
    row("setParameter", Class::Dangerous, Target::None),
    row("setProfilingFilterGlobally", Class::Admin, Target::None),
    row("setQuerySettings", Class::Admin, Target::None),
    row("setShardVersion", Class::Dangerous, Target::None),
    row("setUserWriteBlockMode", Class::Admin, Target::None),
    row("shardCollection", Class::Admin, Target::FullName),
    row("shardConnPoolStats", Class::Admin, Target::None),
    row("shardcollection", Class::Admin, Target::FullName),
    row("shardingState", Class::Admin, Target::None),
    row("shutdown", Class::Dangerous, Target::None),
    row("sleep", Class::Dangerous, Target::None),
    row("split", Class::Admin, Target::FullName),
    row("splitChunk", Class::Admin, Target::FullName),
    row("splitVector", Class::Admin, Target::FullName),
    row("stageDebug", Class::Dangerous, Target::None),
    row("startRecordingTraffic", Class::Admin, Target::None),
    row("startSession", Class::Session, Target::None),
    row("stopRecordingTraffic", Class::Admin, Target::None),
    row("sysprofile", Class::Dangerous, Target::None),
    row("testDeprecation", Class::Dangerous, Target::None),
    row("top", Class::Admin, Target::None),
    row("touch", Class::Admin, Target::Collection),
    row("transitionFromDedicatedConfigServer", Class::Admin, Target::None),
    row("transitionToDedicatedConfigServer", Class::Admin, Target::None),
    row("unsetSharding", Class::Dangerous, Target::None),
    row("unshardCollection", Class::Admin, Target::FullName),
    row("untrackUnshardedCollection", Class::Admin, Target::FullName),
    row("update", Class::Write, Target::Collection),
    row("updateRole", Class::Admin, Target::None),
    row("updateSearchIndex", Class::Ddl, Target::Collection),
    row("updateUser", Class::Admin, Target::None),
    row("updateZoneKeyRange", Class::Admin, Target::None),
    row("usersInfo", Class::Admin, Target::None),
    row("validate", Class::Admin, Target::Collection),
    row("waitForFailPoint", Class::Dangerous, Target::None),
    row("whatsmysni", Class::Admin, Target::None),
    row("whatsmyuri", Class::Connection, Target::None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_finds_each_row() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        for row in COMMANDS {
            assert_eq!(lookup(row.name.as_bytes()), Some(row));
        }
        for unknown in [&b""[..], b"Find", b"finds", b"_configsvrAddShard", b"\xff"] {
            assert_eq!(lookup(unknown), None);
        }
    }

    #[test]
    fn a_name_in_another_case_is_found_and_is_none_of_the_table() {
        let of = |name: &[u8]| lookup_in_another_case(name).map(|row| row.name);
        assert_eq!((of(b"GETMORE"), of(b"buildINFO")), (Some("getMore"), Some("buildInfo")));
        assert_eq!((of(b"getMore"), of(b"buildinfo"), of(b"getmores"), of(b"")), (None, None, None, None));
    }

    /// The second names with which servers register commands: `Command(name, oldName)` of mongod and mongos. Those of mongos 2.x have all
    /// of its administrative commands in lower case as well.
    #[test]
    fn both_forms_of_a_command_have_a_row_and_one_kind() {
        let forms = "availableQueryOptions addShard buildInfo collStats connPoolSync dataSize dbHash dbStats enableSharding \
            findAndModify flushRouterConfig getLastError getPrevError getShardVersion isMaster listShards mapReduce \
            moveChunk movePrimary removeShard resetError shardCollection";
        for form in forms.split_whitespace() {
            let (one, other) = (lookup(form.as_bytes()), lookup(form.to_ascii_lowercase().as_bytes()));
            assert!(one.is_some() && other.is_some(), "{form}");
            let of = |row: Option<&Row>| row.map(|row| (row.class, row.target));
            assert_eq!(of(one), of(other), "{form}");
        }
        for (one, other) in [("dropIndexes", "deleteIndexes"), ("eval", "$eval")] {
            assert_eq!(lookup(one.as_bytes()).map(|row| row.class), lookup(other.as_bytes()).map(|row| row.class));
        }
    }

    /// One of each kind that a policy names.
    #[test]
    fn commands_have_the_class_of_their_section() {
        let of = |class: Class, names: &str| {
            for name in names.split(' ') {
                assert_eq!(lookup(name.as_bytes()).map(|row| row.class), Some(class), "{name}");
            }
        };
        of(
            Class::Read,
            "find aggregate count distinct explain listCollections listIndexes listDatabases dbStats collStats",
        );
        of(Class::Write, "insert update delete findAndModify bulkWrite mapReduce");
        of(Class::Transaction, "commitTransaction abortTransaction");
        of(Class::Session, "getMore killCursors startSession endSessions refreshSessions");
        of(Class::Ddl, "create drop dropDatabase createIndexes dropIndexes collMod renameCollection compact reIndex");
        of(Class::Admin, "createUser dropUser usersInfo rolesInfo currentOp killOp serverStatus addShard killSessions");
        of(Class::Dangerous, "eval copydb shutdown fsync setParameter replSetReconfig applyOps configureFailPoint");
        of(Class::Connection, "hello isMaster ismaster saslStart saslContinue authenticate ping buildInfo logout");
    }
}
