//! S9: optional parts that are absent, empty, repeated or in unusual case are read as the server reads them, or refused.

use weir_mongodb_codec::bson::Writer;
use weir_tests::gateway::Gateway;
use weir_tests::mongodb::FerretDb;
use weir_tests::mongodb::wire::Wire;

use crate::gateway::{before, port};

type Form = (&'static str, fn(&mut Writer<'_>));

fn counted(body: &mut Writer<'_>) {
    body.string("count", "notes");
    body.string("$db", "test");
}

/// Forms that the gateway and the server must read in one way: both succeed, or both refuse.
const FORMS: [Form; 16] = [
    ("plain", counted),
    ("the database in front", |body| {
        // The first field is the command: this one has another name.
        body.string("$db", "test");
        body.string("count", "notes");
    }),
    ("another case", |body| {
        body.string("COUNT", "notes");
        body.string("$db", "test");
    }),
    ("no database", |body| body.string("count", "notes")),
    ("a database that is a number", |body| {
        body.string("count", "notes");
        body.int32("$db", 7);
    }),
    ("an empty read preference", |body| {
        counted(body);
        body.document("$readPreference", |_| {});
    }),
    ("a read preference in another case", |body| {
        counted(body);
        body.document("$readPreference", |preference| preference.string("mode", "PRIMARY"));
    }),
    ("an empty session", |body| {
        counted(body);
        body.document("lsid", |_| {});
    }),
    ("a session id of three bytes", |body| {
        counted(body);
        body.document("lsid", |lsid| lsid.binary("id", 4, &[1, 2, 3]));
    }),
    ("a session that is a text", |body| {
        counted(body);
        body.string("lsid", "me");
    }),
    ("a collection that is a number", |body| {
        body.int32("count", 1);
        body.string("$db", "test");
    }),
    ("a collection of white space", |body| {
        body.string("count", " ");
        body.string("$db", "test");
    }),
    ("a database in another case", |body| {
        body.string("count", "notes");
        body.string("$db", "TEST");
    }),
    ("an unknown field", |body| {
        counted(body);
        body.int32("$unknown", 1);
    }),
    ("a getMore of a number that is a double", |body| {
        body.double("getMore", 12.0);
        body.string("collection", "notes");
        body.string("$db", "test");
    }),
    ("a getMore of a text", |body| {
        body.string("getMore", "12");
        body.string("collection", "notes");
        body.string("$db", "test");
    }),
];

#[test]
fn s9_optional_parts_are_read_as_the_server_reads_them_or_refused() {
    let server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", ""));
    let mut faults = Vec::new();
    for (what, write) in FORMS {
        let mut direct = Wire::connect(server.address.tcp().port());
        let mut through = Wire::connect(port(&gateway));
        let (direct, through) = (direct.call(write), through.call(write));
        // The gateway may refuse what it cannot read; it must not serve what the server refuses.
        if through.is_ok() && !direct.is_ok() {
            faults.push(format!("{what}: served, and directly {direct:?}"));
        }
        if !through.is_ok() && direct.is_ok() && ![9, 14, 22, 73].contains(&through.code()) {
            faults.push(format!("{what}: refused with {through:?}, and directly served"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    gateway.finish();
}

/// Fields of hello that no server knows yet, and values that drivers write in several types.
#[test]
fn s9_hello_takes_what_drivers_send() {
    let server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", ""));
    let forms: [fn(&mut Writer<'_>); 6] = [
        |_| {},
        |body| body.string("backpressure", "2"),
        |body| body.array("compression", [""; 0], |array, name, text| array.string(name, text)),
        |body| body.array("compression", ["noop", "brotli"], |array, name, text| array.string(name, text)),
        |body| body.string("saslSupportedMechs", "admin.nobody"),
        |body| body.document("client", |client| client.document("driver", |driver| driver.string("name", "x"))),
    ];
    for (number, write) in forms.into_iter().enumerate() {
        let (_, reply) = Wire::connect_with(port(&gateway), write);
        for leaked in ["hosts", "setName", "me", "primary", "electionId", "setVersion"] {
            assert!(reply.value(&[leaked]).is_none(), "form {number} has {leaked}: {reply:?}");
        }
        assert!(reply.value(&["compression"]).is_none(), "form {number}: {reply:?}");
    }
    gateway.finish();
}
