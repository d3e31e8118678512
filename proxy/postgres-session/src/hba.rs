//! Which method of authentication a client needs: a list of rules as in `pg_hba.conf`, of which the first that fits decides.

use std::net::IpAddr;

use weir_base::net::Net;

/// How a client proves its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Trust,
    /// It never can: the connection is refused.
    Reject,
    /// A password hashed with MD5; by SCRAM if that is how the password is stored.
    Md5,
    /// SCRAM-SHA-256, bound to the TLS connection if the client can.
    ScramSha256,
    /// The password in clear text, over TLS or a Unix socket only.
    Password,
    /// A client certificate with the user's name.
    Cert,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 6] =
        [Method::Trust, Method::Reject, Method::Md5, Method::ScramSha256, Method::Password, Method::Cert];

    /// The word of `pg_hba.conf` and of the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Method::Trust => "trust",
            Method::Reject => "reject",
            Method::Md5 => "md5",
            Method::ScramSha256 => "scram-sha-256",
            Method::Password => "password",
            Method::Cert => "cert",
        }
    }

    /// The method of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.word() == word)
    }
}

/// A name in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Every name.
    All,
    /// This one.
    Is(Vec<u8>),
    /// For databases: the user's own name.
    SameUser,
    /// For databases: a replication connection. None gets as far as a rule: the login refuses it.
    Replication,
}

impl Name {
    /// The databases of a rule, as `pg_hba.conf` writes them: divided by commas, `all`, `sameuser` and `replication` with their
    /// meanings unless they are quoted.
    ///
    /// # Errors
    /// The list is none, or has a word that only a server with its roles and files understands.
    pub fn databases(text: &str) -> Result<Vec<Name>, &'static str> {
        names(text, |word| match word {
            "all" => Ok(Name::All),
            "sameuser" => Ok(Name::SameUser),
            "replication" => Ok(Name::Replication),
            "samerole" | "samegroup" => Err("the roles of the server are not known here"),
            name => plain(name),
        })
    }

    /// The users of a rule: the same, where `all` alone has a meaning.
    ///
    /// # Errors
    /// As [`Name::databases`].
    pub fn users(text: &str) -> Result<Vec<Name>, &'static str> {
        names(text, |word| match word.strip_prefix('+') {
            Some(_) => Err("the roles of the server are not known here"),
            None if word == "all" => Ok(Name::All),
            None => plain(word),
        })
    }
}

/// A word that is a name.
fn plain(word: &str) -> Result<Name, &'static str> {
    match word.as_bytes() {
        [b'@', ..] => Err("a file of names is not read here"),
        [b'/', ..] => Err("a regular expression is no name here"),
        name if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'"') => {
            Err("names are divided by commas; one with a space or a comma stands in double quotes")
        }
        name => Ok(Name::Is(name.to_vec())),
    }
}

/// Names that are divided by commas. One in double quotes is no keyword.
fn names(text: &str, read: impl Fn(&str) -> Result<Name, &'static str>) -> Result<Vec<Name>, &'static str> {
    let (mut found, mut rest) = (Vec::new(), text.trim());
    loop {
        let (name, behind) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (name, behind) = quoted.split_once('"').ok_or("a quoted name has no second quote")?;
                (Name::Is(name.as_bytes().to_vec()), behind.trim_start())
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (read(rest[..end].trim_end())?, &rest[end..])
            }
        };
        if name == Name::Is(Vec::new()) {
            return Err("a name is empty");
        }
        found.push(name);
        match behind.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if behind.is_empty() => return Ok(found),
            None => return Err("names are divided by commas"),
        }
    }
}

/// The transport of a connection that a rule fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Any: `host` and `local` together.
    #[default]
    Any,
    /// A Unix socket: `local`.
    Local,
    /// TCP: `host`.
    Host,
    /// TCP with TLS: `hostssl`.
    HostTls,
    /// TCP without TLS: `hostnossl`.
    HostPlain,
}

/// A rule. An empty list of names or networks fits everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Transport.
    pub transport: Transport,
    /// Databases.
    pub databases: Vec<Name>,
    /// Users.
    pub users: Vec<Name>,
    /// Client addresses. A rule with one fits no Unix socket.
    pub addresses: Vec<Net>,
    /// The method for a client that fits.
    pub method: Method,
}

/// The client, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Address; `None`: a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether the connection has TLS.
    pub is_tls: bool,
    /// User of the startup packet.
    pub user: &'a [u8],
    /// Database of the startup packet.
    pub database: &'a [u8],
}

/// Rules in order. Without a fitting one a client is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// One method for every client.
    #[must_use]
    pub fn of(method: Method) -> Rules {
        let (databases, users, addresses) = (Vec::new(), Vec::new(), Vec::new());
        Rules(vec![Rule { transport: Transport::Any, databases, users, addresses, method }])
    }

    /// The method of the first rule that fits.
    #[must_use]
    pub fn method(&self, client: &Client<'_>) -> Option<Method> {
        self.0.iter().find(|rule| rule.fits(client)).map(|rule| rule.method)
    }
}

impl Rule {
    fn fits(&self, client: &Client<'_>) -> bool {
        let transport = match self.transport {
            Transport::Any => true,
            Transport::Local => client.address.is_none(),
            Transport::Host => client.address.is_some(),
            Transport::HostTls => client.address.is_some() && client.is_tls,
            Transport::HostPlain => client.address.is_some() && !client.is_tls,
        };
        let in_network = |net: &Net| client.address.is_some_and(|address| net.contains(address));
        let is_user = |name: &Name| match name {
            Name::Is(name) => name == client.user,
            other => *other == Name::All,
        };
        let is_database = |name: &Name| match name {
            Name::All => true,
            Name::Is(name) => name == client.database,
            Name::SameUser => client.database == client.user,
            Name::Replication => false,
        };
        transport
            && (self.addresses.is_empty() || self.addresses.iter().any(in_network))
            && (self.users.is_empty() || self.users.iter().any(is_user))
            && (self.databases.is_empty() || self.databases.iter().any(is_database))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client<'a>(address: Option<&str>, is_tls: bool, user: &'a str, database: &'a str) -> Client<'a> {
        let address = address.map(|text| text.parse().expect("an address"));
        Client { address, is_tls, user: user.as_bytes(), database: database.as_bytes() }
    }

    fn rule(method: Method) -> Rule {
        Rules::of(method).0.remove(0)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let office = "10.0.0.0/8".parse().expect("a network");
        let rules = Rules(vec![
            Rule { users: vec![Name::Is(b"eve".to_vec())], ..rule(Method::Reject) },
            Rule { transport: Transport::Local, ..rule(Method::Trust) },
            Rule { transport: Transport::HostTls, users: vec![Name::Is(b"robot".to_vec())], ..rule(Method::Cert) },
            Rule { databases: vec![Name::SameUser], addresses: vec![office], ..rule(Method::Md5) },
            Rule { databases: vec![Name::Is(b"app".to_vec())], ..rule(Method::ScramSha256) },
        ]);
        let cases = [
            (client(Some("10.1.1.1"), true, "eve", "app"), Some(Method::Reject)),
            (client(None, false, "app", "anything"), Some(Method::Trust)),
            (client(Some("192.0.2.1"), true, "robot", "other"), Some(Method::Cert)),
            (client(Some("192.0.2.1"), false, "robot", "app"), Some(Method::ScramSha256)),
            (client(Some("10.1.1.1"), false, "app", "app"), Some(Method::Md5)),
            (client(Some("::ffff:10.1.1.1"), false, "app", "app"), Some(Method::Md5)),
            (client(Some("192.0.2.1"), false, "app", "app"), Some(Method::ScramSha256)),
            (client(Some("192.0.2.1"), false, "app", "other"), None),
        ];
        for (client, expected) in cases {
            assert_eq!(rules.method(&client), expected, "{client:?}");
        }
        assert_eq!(Rules::default().method(&client(None, true, "a", "a")), None, "no rule fits");
    }

    #[test]
    fn a_rule_for_replication_is_none_for_a_database_of_that_name() {
        let all = Rules(vec![Rule { databases: vec![Name::All], ..rule(Method::Trust) }]);
        let replication = Rules(vec![Rule { databases: vec![Name::Replication], ..rule(Method::Trust) }]);
        let named = client(None, false, "standby", "replication");
        assert_eq!((all.method(&named), replication.method(&named)), (Some(Method::Trust), None));
    }

    #[test]
    fn a_rule_for_addresses_fits_no_unix_socket() {
        let rule = Rule { addresses: vec!["0.0.0.0/0".parse().expect("a network")], ..rule(Method::Trust) };
        assert_eq!(Rules(vec![rule]).method(&client(None, false, "a", "a")), None);
    }

    #[test]
    fn names_are_read_as_in_pg_hba_conf() {
        let is = |name: &str| Name::Is(name.as_bytes().to_vec());
        assert_eq!(Name::users("all"), Ok(vec![Name::All]));
        assert_eq!(Name::users(" app , \"all\",\"a, b\" "), Ok(vec![is("app"), is("all"), is("a, b")]));
        assert_eq!(Name::users("sameuser"), Ok(vec![is("sameuser")]), "a keyword of databases alone");
        let databases = Name::databases("sameuser,replication,shop");
        assert_eq!(databases, Ok(vec![Name::SameUser, Name::Replication, is("shop")]));
        for text in ["", "a,", ",a", "a b", "\"a", "\"a\" b", "\"\"", "@file", "/^a"] {
            assert!(Name::users(text).is_err() && Name::databases(text).is_err(), "{text}");
        }
        assert!(Name::users("+admins").is_err() && Name::databases("samerole").is_err());
    }

    #[test]
    fn each_method_is_found_by_its_word() {
        for method in Method::ALL {
            assert_eq!(Method::from_word(method.word()), Some(method));
        }
        assert_eq!(Method::from_word("scram"), None);
    }
}
