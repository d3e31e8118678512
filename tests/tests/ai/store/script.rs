//! The script in a real server gives the replies of the model, call by call.

use std::time::Duration;

use weir_ai::settings::StoreSettings;
use weir_ai::store::{
    StoreConnection,
    script::{self, Caller, Reply},
};
use weir_base::Rng;
use weir_spend::{
    budget::{AccountId, AccountKind, Measure},
    shared::{ClaimRequest, ClaimSettings, Item, model},
};
use weir_tests::seed::seeded;
use weir_tests::server::{Kind, Server};

const PREFIX: &str = "compared:";

/// A time that never ends within the test, and one that is over at once.
const TTLS: [u64; 2] = [100_000_000, 1];

fn request(rng: &mut Rng, item: Item) -> ClaimRequest {
    // Some above what floating-point numbers print in full.
    let size = [100, 10_000, 1 << 50][rng.below(3) as usize];
    ClaimRequest {
        item,
        limit: rng.below(2 * size) + 1,
        used: rng.below(size / 4),
        held: (rng.below(3) > 0).then(|| rng.below(size / 2)),
        need: if rng.below(2) == 0 { 0 } else { rng.below(size) },
        comfort: rng.below(size / 8),
        is_wanting: rng.below(3) > 0,
        seconds_left: 1_000,
    }
}

fn caller_of(caller: &Caller) -> model::Caller<'_> {
    let Caller { gateway, session, epoch, revision } = caller;
    model::Caller { gateway, session, epoch, revision: *revision }
}

/// Opens in both, and compares.
fn open(at: (&mut StoreConnection, &mut model::Store), caller: &mut Caller, now: u64, grace: u64, rng: &mut Rng) {
    let (connection, store) = at;
    let (run, has_used) = (connection.run.clone(), rng.below(2) == 0);
    let mut command = Vec::new();
    script::open(&mut command, &connection.hash, PREFIX, caller, &run, has_used, grace);
    let value = connection.call(&command).expect("a reply");
    let found = script::read(&value, PREFIX, 0).expect("a reply of the script");
    let model::Opened { epoch, revision } = store.open(&caller_of(caller), has_used, &run, grace, now);
    assert_eq!(found, Reply::Open { epoch: epoch.clone(), revision });
    if caller.epoch != epoch {
        caller.revision = 0;
    }
    (caller.epoch, caller.revision) = (epoch, caller.revision.max(revision));
}

fn compare(kind: Kind, seed: u64, ttl: u64, grace: u64) {
    let (server, mut rng) = (Server::start(kind), Rng::new(seed));
    let settings = StoreSettings {
        endpoints: vec![server.address.text().parse().expect("an address")],
        tls: None,
        username: None,
        password: None,
        prefix: PREFIX.to_owned(),
        claims: ClaimSettings::default(),
    };
    let mut connection = StoreConnection::open(&settings, &settings.endpoints[0]).expect("a connection");
    assert_eq!((connection.hash.len(), connection.run.len()), (40, 40));
    let (mut store, mut now) = (model::Store::default(), 1_000);
    let items: Vec<Item> = [Measure::DayTokens, Measure::MonthMoney]
        .map(|measure| Item { account: AccountId::new(AccountKind::Key, "a"), measure, window: 7 })
        .to_vec();
    let caller = |name: &str| Caller { gateway: name.to_owned(), session: format!("{name}-0"), ..Caller::default() };
    let mut callers = ["g1", "g2", "g3"].map(caller);
    for number in 0..400 {
        let caller = &mut callers[rng.below(3) as usize];
        match rng.below(20) {
            0 => caller.session = format!("{}-{number}", caller.gateway),
            1 => {
                caller.session = format!("{}-{number}", caller.gateway);
                open((&mut connection, &mut store), caller, now, grace, &mut rng);
            }
            2 if rng.below(4) == 0 => {
                server.connect().expect(&["FLUSHALL"], b"+OK\r\n");
                store = model::Store::default();
            }
            _ => {
                let requests: Vec<_> = (0..rng.below(3)).map(|_| items[rng.below(2) as usize]).collect();
                let requests: Vec<ClaimRequest> = requests.into_iter().map(|item| request(&mut rng, item)).collect();
                let (mut command, how) = (Vec::new(), (ttl, rng.below(2) == 0));
                script::claim(&mut command, &connection.hash, PREFIX, caller, how, &requests);
                let value = connection.call(&command).expect("a reply");
                let mut found = script::read(&value, PREFIX, requests.len()).expect("a reply of the script");
                let mut expected = match store.claim(&caller_of(caller), how, &requests, now) {
                    model::Reply::Claims { replies, hungers, revision } => Reply::Claim { revision, replies, hungers },
                    model::Reply::Stale => Reply::Stale,
                    model::Reply::Superseded { by } => Reply::Superseded { by },
                };
                if let Reply::Claim { revision, .. } = found {
                    caller.revision = revision;
                }
                for reply in [&mut found, &mut expected] {
                    if let Reply::Claim { hungers, .. } = reply {
                        hungers.sort_by_key(|hunger| (hunger.item, hunger.need));
                    }
                }
                assert_eq!(found, expected, "{kind:?}, seed {seed}, call {number}: {requests:?}");
            }
        }
        if ttl == 1 {
            // The server has a clock of its own: all claims are over in both.
            std::thread::sleep(Duration::from_millis(3));
            now += 3;
        }
    }
}

#[test]
fn the_script_of_the_store_is_its_model() {
    let seed = seeded().next_u64();
    for kind in Kind::ALL {
        for ttl in TTLS {
            // Without a grace, and with one that does not end.
            for grace in [0, 100_000_000] {
                compare(kind, seed, ttl, grace);
            }
        }
    }
}
