//! The checks, each on connections of its own.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _, TryStreamExt as _, future, pin_mut, stream};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Error, IsolationLevel, NoTls, Notification, SimpleQueryMessage};

use crate::{Check, End};

/// The checks of the driver.
pub const ALL: &[Check] = &[
    ("connects and selects", |url| Box::pin(connects(url))),
    ("a wrong password is refused", |url| Box::pin(wrong_password(url))),
    ("queries are pipelined in order", |url| Box::pin(pipelined(url))),
    ("an error among pipelined queries hits itself alone", |url| Box::pin(pipelined_error(url))),
    ("prepared statements live over transactions", |url| Box::pin(prepared(url))),
    ("dropped statements are closed", |url| Box::pin(dropped(url))),
    ("transactions and savepoints", |url| Box::pin(transactions(url))),
    ("isolation and read-only", |url| Box::pin(isolation(url))),
    ("a dropped transaction is rolled back", |url| Box::pin(dropped_transaction(url))),
    ("portals fetch in portions", |url| Box::pin(portals(url))),
    ("copy in and out as text", |url| Box::pin(copy_text(url))),
    ("copy in and out in binary", |url| Box::pin(copy_binary(url))),
    ("a copy with a bad row leaves the connection usable", |url| Box::pin(bad_copy(url))),
    ("an abandoned copy changes nothing", |url| Box::pin(abandoned_copy(url))),
    ("a copy out that is not read to its end", |url| Box::pin(unread_copy(url))),
    ("a cancel ends its query alone", |url| Box::pin(cancel(url))),
    ("notifications arrive", |url| Box::pin(notifications(url))),
    ("simple queries with several statements", |url| Box::pin(simple(url))),
    ("settings last over transactions", |url| Box::pin(settings(url))),
    ("enums and composite types are looked up", |url| Box::pin(types(url))),
    ("rows are streamed", |url| Box::pin(streamed(url))),
    ("large values", |url| Box::pin(large(url))),
    ("many clients each see their own rows", |url| Box::pin(many(url))),
];

fn is<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> End {
    if got == want { Ok(()) } else { Err(format!("{got:?} instead of {want:?}").into()) }
}

fn state<T>(result: &Result<T, Error>) -> String {
    match result {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()),
    }
}

async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A client, and the notifications that its connection hears.
async fn hearing(url: &str) -> Result<(Client, tokio::sync::mpsc::UnboundedReceiver<Notification>), Error> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let (heard, notifications) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(note) = message {
                let _ = heard.send(note);
            }
        }
    });
    Ok((client, notifications))
}

async fn number(client: &Client, text: &str, values: &[&(dyn ToSql + Sync)]) -> Result<i64, Error> {
    Ok(client.query_one(text, values).await?.get(0))
}

async fn connects(url: String) -> End {
    let client = connect(&url).await?;
    let row = client.query_one("select current_user::text, $1::int + 1", &[&2]).await?;
    is((row.get::<_, String>(0), row.get::<_, i32>(1)), ("app".to_owned(), 3))
}

async fn wrong_password(url: String) -> End {
    let mut config: tokio_postgres::Config = url.parse()?;
    config.password("wrong");
    is(state(&config.connect(NoTls).await), "28P01".to_owned())
}

async fn pipelined(url: String) -> End {
    let client = connect(&url).await?;
    let statement = client.prepare("select $1::int8").await?;
    let numbers: Vec<i64> = (0..500).collect();
    let rows = future::try_join_all(
        numbers
            .iter()
            .map(async |number| client.query_one(&statement, &[number]).await.map(|row| row.get::<_, i64>(0))),
    );
    is(rows.await?, numbers)
}

async fn pipelined_error(url: String) -> End {
    let client = connect(&url).await?;
    let texts = ["select 1::int8", "select 1::int8 / 0", "select 3::int8"];
    let ends = future::join_all(texts.map(|text| number(&client, text, &[]))).await;
    is(ends.iter().map(state).collect(), vec!["no error".to_owned(), "22012".to_owned(), "no error".to_owned()])
}

async fn prepared(url: String) -> End {
    let mut client = connect(&url).await?;
    let statement = client.prepare_typed("select $1 * 2", &[Type::INT8]).await?;
    for value in 0..20_i64 {
        let transaction = client.transaction().await?;
        is(transaction.query_one(&statement, &[&value]).await?.get(0), 2 * value)?;
        transaction.commit().await?;
    }
    Ok(())
}

async fn dropped(url: String) -> End {
    let client = connect(&url).await?;
    for value in 0..200_i64 {
        let statement = client.prepare(&format!("select $1::int8 + {value}")).await?;
        is(client.query_one(&statement, &[&1_i64]).await?.get(0), 1 + value)?;
    }
    Ok(())
}

async fn transactions(url: String) -> End {
    let (mut client, other) = (connect(&url).await?, connect(&url).await?);
    client.batch_execute("create table rust_money (n int unique)").await?;
    let mut transaction = client.transaction().await?;
    transaction.execute("insert into rust_money values (1)", &[]).await?;
    let savepoint = transaction.savepoint("s").await?;
    let end = savepoint.execute("insert into rust_money values (1)", &[]).await;
    is(state(&end), "23505".to_owned())?;
    savepoint.rollback().await?;
    is(number(&other, "select count(*) from rust_money", &[]).await?, 0)?;
    transaction.commit().await?;
    is(number(&other, "select count(*) from rust_money", &[]).await?, 1)
}

async fn isolation(url: String) -> End {
    let mut client = connect(&url).await?;
    let builder = client.build_transaction().isolation_level(IsolationLevel::Serializable).read_only(true);
    let transaction = builder.start().await?;
    let shown: String = transaction.query_one("show transaction_isolation", &[]).await?.get(0);
    is(shown, "serializable".to_owned())?;
    is(state(&transaction.batch_execute("create table never (n int)").await), "25006".to_owned())?;
    Ok(transaction.rollback().await?)
}

async fn dropped_transaction(url: String) -> End {
    let mut client = connect(&url).await?;
    client.batch_execute("create table rust_dropped (n int)").await?;
    let transaction = client.transaction().await?;
    transaction.execute("insert into rust_dropped values (1)", &[]).await?;
    drop(transaction);
    is(number(&client, "select count(*) from rust_dropped", &[]).await?, 0)
}

async fn portals(url: String) -> End {
    let mut client = connect(&url).await?;
    let transaction = client.transaction().await?;
    let portal = transaction.bind("select generate_series(1, 1000)::int8", &[]).await?;
    let mut sum = 0;
    loop {
        let rows = transaction.query_portal(&portal, 70).await?;
        if rows.is_empty() {
            break;
        }
        sum += rows.iter().map(|row| row.get::<_, i64>(0)).sum::<i64>();
    }
    transaction.commit().await?;
    is(sum, 500_500)
}

async fn copy_text(url: String) -> End {
    let client = connect(&url).await?;
    client.batch_execute("create table rust_copied (n int)").await?;
    let sink = client.copy_in("copy rust_copied from stdin").await?;
    let mut pieces = stream::iter((0..200).map(|_| Ok::<_, Error>(Bytes::from("7\n".repeat(100)))));
    pin_mut!(sink);
    sink.send_all(&mut pieces).await?;
    is(sink.finish().await?, 20_000)?;
    let pieces: Vec<Bytes> = client.copy_out("copy rust_copied to stdout").await?.try_collect().await?;
    is(pieces.iter().map(Bytes::len).sum::<usize>(), 40_000)
}

async fn copy_binary(url: String) -> End {
    let client = connect(&url).await?;
    client.batch_execute("create table rust_binary (n int8, t text)").await?;
    let sink = client.copy_in("copy rust_binary from stdin (format binary)").await?;
    let types = [Type::INT8, Type::TEXT];
    let writer = BinaryCopyInWriter::new(sink, &types);
    pin_mut!(writer);
    for value in 0..5000_i64 {
        writer.as_mut().write(&[&value, &format!("row {value}")]).await?;
    }
    is(writer.finish().await?, 5000)?;
    let rows = client.copy_out("copy (select * from rust_binary order by n) to stdout (format binary)").await?;
    let rows: Vec<_> = BinaryCopyOutStream::new(rows, &types).try_collect().await?;
    is(rows.iter().map(|row| row.get::<i64>(0)).collect::<Vec<_>>(), (0..5000).collect())
}

async fn bad_copy(url: String) -> End {
    let client = connect(&url).await?;
    client.batch_execute("create table rust_bad (n int)").await?;
    let sink = client.copy_in("copy rust_bad from stdin").await?;
    pin_mut!(sink);
    let lines = (0..300).map(|part| Bytes::from(if part == 1 { "x\n".to_owned() } else { "7\n".repeat(1000) }));
    let sent = sink.send_all(&mut stream::iter(lines.map(Ok::<_, Error>))).await;
    let end = match sent {
        Ok(()) => sink.finish().await,
        Err(error) => Err(error),
    };
    is(state(&end), "22P02".to_owned())?;
    is(number(&client, "select count(*) from rust_bad", &[]).await?, 0)
}

async fn abandoned_copy(url: String) -> End {
    let client = connect(&url).await?;
    client.batch_execute("create table rust_abandoned (n int)").await?;
    {
        let sink = client.copy_in("copy rust_abandoned from stdin").await?;
        pin_mut!(sink);
        sink.send(Bytes::from("1\n")).await?;
    }
    is(number(&client, "select count(*) from rust_abandoned", &[]).await?, 0)
}

async fn unread_copy(url: String) -> End {
    let client = connect(&url).await?;
    {
        let rows = client.copy_out("copy (select generate_series(1, 300000)) to stdout").await?;
        pin_mut!(rows);
        rows.next().await.ok_or("no row")??;
    }
    is(number(&client, "select 1::int8", &[]).await?, 1)
}

async fn cancel(url: String) -> End {
    let (client, other) = (connect(&url).await?, connect(&url).await?);
    let token = client.cancel_token();
    let beside = tokio::spawn(async move { other.batch_execute("select pg_sleep(1)").await });
    let cancelling = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        token.cancel_query(NoTls).await
    });
    let begun = Instant::now();
    is(state(&client.batch_execute("select pg_sleep(20)").await), "57014".to_owned())?;
    cancelling.await??;
    beside.await??;
    is(begun.elapsed() < Duration::from_secs(10), true)?;
    is(number(&client, "select 1::int8", &[]).await?, 1)
}

async fn notifications(url: String) -> End {
    let ((client, mut heard), other) = (hearing(&url).await?, connect(&url).await?);
    client.batch_execute("listen rust_news").await?;
    other.batch_execute("notify rust_news, 'hello'").await?;
    let note = tokio::time::timeout(Duration::from_secs(10), heard.recv()).await?.ok_or("the connection ended")?;
    is((note.channel(), note.payload()), ("rust_news", "hello"))
}

async fn simple(url: String) -> End {
    let client = connect(&url).await?;
    let messages = client.simple_query("select 1; select 2; select 3").await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    is(rows.collect::<Vec<_>>(), ["1", "2", "3"].to_vec())?;
    is(state(&client.simple_query("select 1; select 1/0; select 3").await), "22012".to_owned())
}

async fn settings(url: String) -> End {
    let (mut client, other) = (connect(&url).await?, connect(&url).await?);
    client.batch_execute("set work_mem = '5MB'; set search_path = pg_catalog").await?;
    for _ in 0..4 {
        let transaction = client.transaction().await?;
        is(transaction.query_one("show work_mem", &[]).await?.get::<_, String>(0), "5MB".to_owned())?;
        is(transaction.query_one("show search_path", &[]).await?.get::<_, String>(0), "pg_catalog".to_owned())?;
        transaction.commit().await?;
        is(other.query_one("show work_mem", &[]).await?.get::<_, String>(0), "4MB".to_owned())?;
    }
    Ok(())
}

async fn types(url: String) -> End {
    let client = connect(&url).await?;
    client
        .batch_execute("create type rust_mood as enum ('sad', 'happy'); create type rust_pair as (a int, m rust_mood)")
        .await?;
    let statement = client.prepare("select $1::rust_mood, row(1, 'sad')::rust_pair").await?;
    is(statement.params()[0].name().to_owned(), "rust_mood".to_owned())?;
    is(statement.columns()[1].type_().name().to_owned(), "rust_pair".to_owned())
}

async fn streamed(url: String) -> End {
    let client = connect(&url).await?;
    let none: [i32; 0] = [];
    let rows = client.query_raw("select generate_series(1, 100000)::int8", none).await?;
    let sum = rows.try_fold(0, async |sum, row| Ok(sum + row.get::<_, i64>(0))).await?;
    is(sum, 5_000_050_000)
}

async fn large(url: String) -> End {
    let client = connect(&url).await?;
    let text = "x".repeat(8_000_000);
    let row = client.query_one("select $1::text", &[&text]).await?;
    is(row.get::<_, String>(0) == text, true)
}

async fn many(url: String) -> End {
    let work = (0..50_i64).map(async |mark| {
        let client = connect(&url).await?;
        for step in 0..20_i64 {
            let row = client.query_one("select $1::int8, $2::int8", &[&mark, &step]).await?;
            is((row.get::<_, i64>(0), row.get::<_, i64>(1)), (mark, step))?;
        }
        Ok(())
    });
    future::try_join_all(work).await.map(|_| ())
}
