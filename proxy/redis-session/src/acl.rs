//! ACL, where the listener has users: what Redis 7.0 answers (`acl.c`, `aclCommand`), of the listener's users.

use weir_analysis::redis::{self, Args, Command, Resolved};
use weir_policy::redis::{self as policy, CATEGORIES, DeniedPart, NoPermission, Selector, User};
use weir_resp::{Version, encode};

use crate::{
    access::permission,
    io::Io,
    refusal,
    request::Request,
    request::parse_integer,
    state::{CommandStatus, State},
};

/// Bits of a password that ACL GENPASS makes by default.
const GENPASS_BITS: i64 = 256;
/// The most it makes.
const GENPASS_BITS_MAX: i64 = 4096;
/// Entries that ACL LOG tells unprompted.
const LOG_ENTRIES: i64 = 10;

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
    "HELP",
    "    Print this help.",
];

impl State {
    /// ACL and its subcommands but WHOAMI. Whether the client may use them is decided.
    pub(crate) fn acl(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if self.transaction.is_some() {
            return self.queue_local(request, io);
        }
        io.count(Some(command), 1);
        match (command.name, request.argc()) {
            ("acl|list", _) => self.acl_list(false, io),
            ("acl|users", _) => self.acl_list(true, io),
            ("acl|getuser", _) => self.acl_getuser(request, io),
            ("acl|cat", 2 | 3) => self.acl_cat(request, io),
            ("acl|genpass", 2 | 3) => self.acl_genpass(request, io),
            ("acl|log", 2 | 3) => self.acl_log(request, io),
            ("acl|dryrun", _) => self.acl_dryrun(request, io),
            ("acl|help", _) => {
                self.local(io, |out| {
                    encode::array(out, HELP.len());
                    HELP.iter().for_each(|line| encode::simple(out, line));
                });
                CommandStatus::Done
            }
            ("acl|setuser" | "acl|deluser" | "acl|load" | "acl|save", _) => self.error(io, refusal::USERS_IN_FILE),
            _ => {
                let name = String::from_utf8_lossy(request.text(1)).into_owned();
                let text = format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP.");
                self.error(io, &text)
            }
        }
    }

    fn acl_list(&mut self, only_names: bool, io: &impl Io) -> CommandStatus {
        let Some(users) = self.users.clone() else { return self.null(io) };
        self.local(io, |out| {
            encode::array(out, users.iter().len());
            for user in users.iter().map(|user| &user.acl) {
                match only_names {
                    true => encode::bulk(out, user.name().as_bytes()),
                    false => encode::bulk(out, format!("user {} {}", user.name(), user.describe()).as_bytes()),
                }
            }
        });
        CommandStatus::Done
    }

    fn acl_getuser(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let user = self.users.as_ref().and_then(|users| users.get(request.text(2))).cloned();
        let Some(user) = user else { return self.null(io) };
        let version = self.version;
        self.local(io, |out| write_user(out, &user.acl, version));
        CommandStatus::Done
    }

    fn acl_cat(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let names: Vec<&str> = if request.argc() == 2 {
            CATEGORIES.iter().map(|(name, _)| *name).collect()
        } else {
            let name = String::from_utf8_lossy(request.text(2)).into_owned();
            let Some(category) = policy::category(&name) else {
                let shown: String = name.chars().take(128).collect();
                return self.error(io, &format!("ERR Unknown category '{shown}'"));
            };
            let members = redis::COMMANDS.iter().filter(|command| command.categories.intersects(category));
            members.map(|command| command.name).collect()
        };
        self.local(io, |out| {
            encode::array(out, names.len());
            names.iter().for_each(|name| encode::bulk(out, name.as_bytes()));
        });
        CommandStatus::Done
    }

    fn acl_genpass(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let bits = match request.arg(2) {
            None => Some(GENPASS_BITS),
            Some(text) => parse_integer(text),
        };
        let Some(bits) = bits else { return self.error(io, refusal::NOT_INTEGER) };
        if !(1..=GENPASS_BITS_MAX).contains(&bits) {
            return self.error(io, refusal::GENPASS_RANGE);
        }
        match policy::random_password(bits as usize) {
            Some(password) => self.bulk(io, password.as_bytes()),
            None => self.error(io, "ERR weir: the system gives no randomness"),
        }
    }

    fn acl_log(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let Some(share) = io.share() else {
            self.local(io, |out| encode::array(out, 0));
            return CommandStatus::Done;
        };
        let wanted = request.arg(2);
        if wanted.is_some_and(|word| word.eq_ignore_ascii_case(b"RESET")) {
            share.log().clear();
            return self.ok(io);
        }
        let Some(count) = wanted.map_or(Some(LOG_ENTRIES), parse_integer) else {
            return self.error(io, refusal::NOT_INTEGER);
        };
        let (version, now) = (self.version, io.now());
        let log = share.log();
        let count = usize::try_from(count).unwrap_or(0).min(log.entries().len());
        self.local(io, |out| {
            encode::array(out, count);
            for entry in log.entries().take(count) {
                encode::map(out, 7, version);
                encode::bulk(out, b"count");
                encode::integer(out, entry.count as i64);
                let fields: [(&str, &[u8]); 4] = [
                    ("reason", entry.reason.name().as_bytes()),
                    ("context", entry.context.name().as_bytes()),
                    ("object", &entry.object),
                    ("username", &entry.user),
                ];
                for (name, value) in fields {
                    encode::bulk(out, name.as_bytes());
                    encode::bulk(out, value);
                }
                encode::bulk(out, b"age-seconds");
                let age = std::time::Duration::from_nanos(now.as_nanos()).saturating_sub(entry.at);
                encode::double(out, age.as_millis() as f64 / 1e3, version);
                encode::bulk(out, b"client-info");
                encode::bulk(out, &entry.client);
            }
        });
        CommandStatus::Done
    }

    fn acl_dryrun(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let args: Vec<&[u8]> = (3..request.argc()).map(|index| request.text(index)).collect();
        let user = self.users.as_ref().and_then(|users| users.get(request.text(2))).cloned();
        let name = |index| String::from_utf8_lossy(request.text(index)).into_owned();
        let Some(user) = user else { return self.error(io, &format!("ERR User '{}' not found", name(2))) };
        let first = args.first().copied().unwrap_or_default();
        let Resolved::Known(command) = redis::resolve(first, args.get(1).copied()) else {
            return self.error(io, &format!("ERR Command '{}' not found", name(3)));
        };
        if !redis::check_arity(command, args.len()) {
            let text = format!("ERR wrong number of arguments for '{}' command", command.name);
            return self.error(io, &text);
        }
        let argument = |index: usize| args.get(index).copied().unwrap_or_default();
        let denied = |what: &[u8], kind: &str| {
            [b"This user has no permissions to access the '", what, b"' ", kind.as_bytes()].concat()
        };
        let text = match permission(&user, command, &args) {
            Ok(()) => return self.ok(io),
            Err(NoPermission::Denied(DeniedPart::Command)) => {
                format!("This user has no permissions to run the '{}' command", command.name).into_bytes()
            }
            Err(NoPermission::Denied(DeniedPart::Key(index))) => denied(argument(index), "key"),
            Err(NoPermission::Denied(DeniedPart::Channel(index))) => denied(argument(index), "channel"),
            Err(NoPermission::SortBy | NoPermission::SortGet) => {
                b"This user has no permissions to read the keys that BY and GET name".to_vec()
            }
            Err(NoPermission::Script) => b"This user has no permissions to run scripts at the gateway".to_vec(),
            Err(NoPermission::Keys(_)) => b"The keys of this command cannot be found".to_vec(),
        };
        self.bulk(io, &text)
    }

    fn null(&mut self, io: &impl Io) -> CommandStatus {
        let version = self.version;
        self.local(io, |out| encode::null_bulk(out, version));
        CommandStatus::Done
    }
}

fn write_user(out: &mut Vec<u8>, user: &User, version: Version) {
    let (root, selectors) = user.selectors();
    encode::map(out, 6, version);
    encode::bulk(out, b"flags");
    let flags = user.flags();
    encode::set(out, flags.len(), version);
    flags.iter().for_each(|flag| encode::bulk(out, flag.as_bytes()));
    encode::bulk(out, b"passwords");
    let passwords = user.password_hashes();
    encode::array(out, passwords.len());
    passwords.iter().for_each(|hash| encode::bulk(out, hash.as_bytes()));
    write_selector(out, root);
    encode::bulk(out, b"selectors");
    encode::array(out, selectors.len());
    for selector in selectors {
        encode::map(out, 3, version);
        write_selector(out, selector);
    }
}

fn write_selector(out: &mut Vec<u8>, selector: &Selector) {
    let fields = [
        ("commands", selector.describe_commands()),
        ("keys", selector.describe_keys()),
        ("channels", selector.describe_channels()),
    ];
    for (name, value) in fields {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
}
