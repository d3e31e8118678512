//! The place of the server in a deployment, as hello states it.

use weir_mongodb_codec::bson::Writer;

/// The kind of server that clients see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Face {
    /// A mongod without a set. It has no transactions and no retryable writes.
    #[default]
    Standalone,
    /// A mongos.
    Mongos,
    /// A mongos behind a load balancer: its hello has a `serviceId` if the client says `loadBalanced`, and cursors and transactions of
    /// such a client stay on their connection.
    LoadBalancer,
    /// A member of a replica set.
    Member(Member),
}

/// A member of a replica set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name of the set.
    pub set: String,
    /// All members, as `host:port`.
    pub hosts: Vec<String>,
    /// The name of this member among them.
    pub me: String,
    /// The primary; `None`: there is none. Members whose `me` it is not are secondaries.
    pub primary: Option<String>,
    /// Tags of this member, for read preferences.
    pub tags: Vec<(String, String)>,
    /// The election that made the primary what it is. Greater than that of the primary before.
    pub election: u64,
}

impl Face {
    /// Its word in the command `weirOrigin`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Mongos => "mongos",
            Self::LoadBalancer => "loadBalancer",
            Self::Member(_) => "member",
        }
    }

    /// Whether it takes writes.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        match self {
            Self::Member(member) => member.primary.as_deref() == Some(&*member.me),
            _ => true,
        }
    }

    /// Whether replies state the time of the deployment, and sessions have transactions.
    pub(super) const fn has_cluster(&self) -> bool {
        !matches!(self, Self::Standalone)
    }

    /// Whether it is a mongos.
    pub(super) const fn is_mongos(&self) -> bool {
        matches!(self, Self::Mongos | Self::LoadBalancer)
    }

    /// Its fields of hello.
    pub(super) fn write(&self, body: &mut Writer<'_>) {
        match self {
            Self::Standalone => {}
            Self::Mongos | Self::LoadBalancer => body.string("msg", "isdbgrid"),
            Self::Member(member) => member.write(body, self.is_writable()),
        }
    }
}

impl Member {
    fn write(&self, body: &mut Writer<'_>, is_primary: bool) {
        body.bool("secondary", !is_primary);
        body.array("hosts", &self.hosts, |body, name, host| body.string(name, host));
        body.string("setName", &self.set);
        body.int32("setVersion", 1);
        if let Some(primary) = &self.primary {
            body.string("primary", primary);
        }
        body.string("me", &self.me);
        if !self.tags.is_empty() {
            body.document("tags", |body| self.tags.iter().for_each(|(name, value)| body.string(name, value)));
        }
        if is_primary {
            let mut id = [0; 12];
            id[4..].copy_from_slice(&self.election.to_be_bytes());
            // As MongoDB writes the id of an election: its term behind the greatest time.
            id[..4].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
            body.object_id("electionId", id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_primary_of_a_set_takes_writes() {
        let member = |me: &str, primary: Option<&str>| {
            Face::Member(Member { me: me.into(), primary: primary.map(Into::into), ..Member::default() })
        };
        assert!(member("a:1", Some("a:1")).is_writable());
        assert!(!member("b:1", Some("a:1")).is_writable() && !member("b:1", None).is_writable());
        assert!(Face::Standalone.is_writable() && Face::Mongos.is_writable());
    }
}
