package drivers;

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Timer;
import java.util.TimerTask;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;

import org.postgresql.PGConnection;
import org.postgresql.PGNotification;

/** The checks, each on connections of its own. */
final class Jdbc {
    private Jdbc() {}

    static Map<String, Main.Check> checks() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("connects and selects", Jdbc::connects);
        checks.put("a wrong password is refused", Jdbc::wrongPassword);
        checks.put("properties of the connection take effect", Jdbc::properties);
        checks.put("parameters of many types", Jdbc::types);
        checks.put("every query mode", Jdbc::queryModes);
        checks.put("statements on the server after prepareThreshold", Jdbc::prepareThreshold);
        checks.put("more statements than the cache holds", Jdbc::statementCache);
        checks.put("transactions commit and roll back", Jdbc::transactions);
        checks.put("savepoints undo a part", Jdbc::savepoints);
        checks.put("autosave survives an error", Jdbc::autosave);
        checks.put("a changed table is noticed", Jdbc::changedTable);
        checks.put("a fetch size makes a cursor", Jdbc::fetchSize);
        checks.put("a cursor of fetch size beside other statements", Jdbc::fetchSizeInterleaved);
        checks.put("batches and their errors", Jdbc::batches);
        checks.put("batches that are rewritten", Jdbc::rewrittenBatches);
        checks.put("generated keys", Jdbc::generatedKeys);
        checks.put("copy in and out", Jdbc::copy);
        checks.put("a copy that is given up", Jdbc::cancelledCopy);
        checks.put("read-only connections refuse writes", Jdbc::readOnly);
        checks.put("isolation levels", Jdbc::isolation);
        checks.put("a statement is cancelled", Jdbc::cancel);
        checks.put("a query timeout ends a query", Jdbc::queryTimeout);
        checks.put("a network timeout ends a connection", Jdbc::networkTimeout);
        checks.put("notifications are read", Jdbc::notifications);
        checks.put("settings last over transactions", Jdbc::settings);
        checks.put("the schema of a connection", Jdbc::schema);
        checks.put("temporary tables and locks are those of the connection", Jdbc::sessionState);
        checks.put("several results of one text", Jdbc::severalResults);
        checks.put("metadata of tables", Jdbc::metadata);
        checks.put("large values", Jdbc::largeValues);
        checks.put("a connection is validated", Jdbc::valid);
        checks.put("many threads each see their own rows", Jdbc::threads);
        return checks;
    }

    private static Connection connect(Main.Target target, String... pairs) throws SQLException {
        return DriverManager.getConnection(target.url(), target.properties(pairs));
    }

    private static void execute(Connection connection, String... texts) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String text : texts) {
                statement.execute(text);
            }
        }
    }

    private static String value(Connection connection, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int index = 0; index < values.length; index++) {
                statement.setObject(index + 1, values[index]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                return rows.next() ? rows.getString(1) : null;
            }
        }
    }

    private static void is(Object want, Object got) {
        if (!Objects.equals(String.valueOf(want), String.valueOf(got))) {
            throw new AssertionError(got + " instead of " + want);
        }
    }

    private static SQLException fails(String state, Callable<?> action) throws Exception {
        try {
            action.call();
        } catch (SQLException error) {
            if (state != null) {
                is(state, error.getSQLState());
            }
            return error;
        }
        throw new AssertionError("no error " + state);
    }

    private static SQLException fails(String state, Connection connection, String text) throws Exception {
        return fails(state, () -> {
            execute(connection, text);
            return null;
        });
    }

    private static void connects(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            is("app", value(connection, "select current_user"));
            is(3, value(connection, "select ? + 1", 2));
        }
    }

    private static void wrongPassword(Main.Target target) throws Exception {
        fails("28P01", () -> DriverManager.getConnection(target.url(), target.properties("password", "wrong")));
    }

    private static void properties(Main.Target target) throws Exception {
        String[] pairs = {"ApplicationName", "jdbc", "currentSchema", "pg_catalog", "options", "-c statement_timeout=54s"};
        try (Connection connection = connect(target, pairs)) {
            is("jdbc", value(connection, "show application_name"));
            is("pg_catalog", value(connection, "show search_path"));
            is("54s", value(connection, "show statement_timeout"));
        }
    }

    private static void types(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            // After five uses results come in binary.
            for (int round = 0; round < 8; round++) {
                is(1L << 60, value(connection, "select ?::int8", 1L << 60));
                is("1234.5678", value(connection, "select ?::numeric", new BigDecimal("1234.5678")));
                is(new UUID(1, 2), value(connection, "select ?::uuid", new UUID(1, 2)));
                is("t", value(connection, "select ?::bool", true));
                is("\u00fc", value(connection, "select ?::text", "\u00fc"));
                OffsetDateTime time = OffsetDateTime.of(2024, 2, 29, 1, 2, 3, 0, ZoneOffset.UTC);
                is("t", value(connection, "select ?::timestamptz = '2024-02-29 01:02:03+00'", time));
                var array = connection.createArrayOf("int4", new Integer[] {1, 2});
                is("1,2", value(connection, "select array_to_string(?::int[], ',')", array));
                is(null, value(connection, "select ?::text", (Object) null));
            }
        }
    }

    private static void queryModes(Main.Target target) throws Exception {
        for (String mode : List.of("simple", "extended", "extendedForPrepared", "extendedCacheEverything")) {
            try (Connection connection = connect(target, "preferQueryMode", mode)) {
                for (int number = 0; number < 8; number++) {
                    is(number + 1, value(connection, "select ?::int + 1", number));
                }
            }
        }
    }

    private static void prepareThreshold(Main.Target target) throws Exception {
        for (String threshold : List.of("1", "5", "-1")) {
            try (Connection connection = connect(target, "prepareThreshold", threshold)) {
                connection.setAutoCommit(false);
                try (PreparedStatement statement = connection.prepareStatement("select ?::int * 2")) {
                    for (int number = 0; number < 20; number++) {
                        statement.setInt(1, number);
                        try (ResultSet rows = statement.executeQuery()) {
                            rows.next();
                            is(2 * number, rows.getInt(1));
                        }
                        connection.commit();
                    }
                }
            }
        }
    }

    private static void statementCache(Main.Target target) throws Exception {
        try (Connection connection = connect(target, "prepareThreshold", "1", "preparedStatementCacheQueries", "5")) {
            for (int round = 0; round < 3; round++) {
                for (int number = 0; number < 30; number++) {
                    is(round + number, value(connection, "select ?::int + " + number, round));
                }
            }
        }
    }

    private static void transactions(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Connection other = connect(target)) {
            execute(connection, "create table jdbc_money (n int)");
            connection.setAutoCommit(false);
            execute(connection, "insert into jdbc_money values (1)");
            is(0, value(other, "select count(*) from jdbc_money"));
            connection.commit();
            execute(connection, "insert into jdbc_money values (2)");
            connection.rollback();
            fails("22012", connection, "select 1/0");
            fails("25P02", connection, "select 1");
            connection.rollback();
            is(1, value(other, "select count(*) from jdbc_money"));
        }
    }

    private static void savepoints(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            execute(connection, "create table jdbc_parts (n int unique)");
            connection.setAutoCommit(false);
            execute(connection, "insert into jdbc_parts values (1)");
            Savepoint savepoint = connection.setSavepoint("one \"part\"");
            fails("23505", connection, "insert into jdbc_parts values (1)");
            connection.rollback(savepoint);
            execute(connection, "insert into jdbc_parts values (2)");
            connection.commit();
            is(2, value(connection, "select count(*) from jdbc_parts"));
        }
    }

    private static void autosave(Main.Target target) throws Exception {
        try (Connection connection = connect(target, "autosave", "always")) {
            execute(connection, "create table jdbc_saved (n int unique)");
            connection.setAutoCommit(false);
            execute(connection, "insert into jdbc_saved values (1)");
            fails("23505", connection, "insert into jdbc_saved values (1)");
            execute(connection, "insert into jdbc_saved values (2)");
            connection.commit();
            is(2, value(connection, "select count(*) from jdbc_saved"));
        }
    }

    private static void changedTable(Main.Target target) throws Exception {
        String[] pairs = {"prepareThreshold", "1", "autosave", "conservative"};
        try (Connection connection = connect(target, pairs); Connection other = connect(target)) {
            execute(other, "create table jdbc_changing (a int)", "insert into jdbc_changing values (1)");
            for (int round = 0; round < 4; round++) {
                is(1, value(connection, "select * from jdbc_changing"));
            }
            execute(other, "alter table jdbc_changing add column b int");
            connection.setAutoCommit(false);
            is(1, value(connection, "select * from jdbc_changing"));
            connection.commit();
        }
    }

    private static void fetchSize(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            connection.setAutoCommit(false);
            try (PreparedStatement statement = connection.prepareStatement("select generate_series(1, ?)")) {
                for (int round = 0; round < 7; round++) {
                    statement.setInt(1, 1000);
                    statement.setFetchSize(70);
                    long sum = 0;
                    try (ResultSet rows = statement.executeQuery()) {
                        while (rows.next()) {
                            sum += rows.getInt(1);
                        }
                    }
                    is(500500, sum);
                    connection.commit();
                }
            }
        }
    }

    private static void fetchSizeInterleaved(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Statement statement = connection.createStatement()) {
            connection.setAutoCommit(false);
            statement.setFetchSize(10);
            try (ResultSet rows = statement.executeQuery("select generate_series(1, 100)")) {
                for (int number = 1; number <= 100; number++) {
                    rows.next();
                    is(number, rows.getInt(1));
                    is(number, value(connection, "select ?::int", number));
                }
            }
            connection.commit();
        }
    }

    private static void batches(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            execute(connection, "create table jdbc_batch (n int unique)");
            try (PreparedStatement statement = connection.prepareStatement("insert into jdbc_batch values (?)")) {
                for (int number = 0; number < 1000; number++) {
                    statement.setInt(1, number);
                    statement.addBatch();
                }
                is(1000, Arrays.stream(statement.executeBatch()).sum());
                for (int number : new int[] {5000, 1, 5001}) {
                    statement.setInt(1, number);
                    statement.addBatch();
                }
                SQLException error = fails("23505", statement::executeBatch);
                is(true, error instanceof BatchUpdateException);
            }
            is(999, value(connection, "select max(n) from jdbc_batch"));
        }
    }

    private static void rewrittenBatches(Main.Target target) throws Exception {
        try (Connection connection = connect(target, "reWriteBatchedInserts", "true")) {
            execute(connection, "create table jdbc_rewritten (n int, t text)");
            String text = "insert into jdbc_rewritten values (?, ?)";
            try (PreparedStatement statement = connection.prepareStatement(text)) {
                for (int round = 0; round < 3; round++) {
                    for (int number = 0; number < 777; number++) {
                        statement.setInt(1, number);
                        statement.setString(2, "row " + number);
                        statement.addBatch();
                    }
                    statement.executeBatch();
                }
            }
            is(3 * 777, value(connection, "select count(*) from jdbc_rewritten"));
        }
    }

    private static void generatedKeys(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            execute(connection, "create table jdbc_keys (id serial, t text)");
            String text = "insert into jdbc_keys (t) values (?)";
            try (PreparedStatement statement = connection.prepareStatement(text, Statement.RETURN_GENERATED_KEYS)) {
                for (int number = 1; number < 9; number++) {
                    statement.setString(1, "x");
                    statement.executeUpdate();
                    try (ResultSet keys = statement.getGeneratedKeys()) {
                        keys.next();
                        is(number, keys.getInt("id"));
                    }
                }
            }
        }
    }

    private static void copy(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            execute(connection, "create table jdbc_copied (n int)");
            var manager = connection.unwrap(PGConnection.class).getCopyAPI();
            is(20000, manager.copyIn("copy jdbc_copied from stdin", new StringReader("7\n".repeat(20000))));
            StringWriter out = new StringWriter();
            is(20000, manager.copyOut("copy jdbc_copied to stdout", out));
            is(40000, out.toString().length());
            String bad = "1\nx\n" + "2\n".repeat(200000);
            fails("22P02", () -> manager.copyIn("copy jdbc_copied from stdin", new StringReader(bad)));
            is(20000, value(connection, "select count(*) from jdbc_copied"));
        }
    }

    private static void cancelledCopy(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            execute(connection, "create table jdbc_given_up (n int)");
            var copy = connection.unwrap(PGConnection.class).getCopyAPI().copyIn("copy jdbc_given_up from stdin");
            byte[] row = "1\n".getBytes();
            copy.writeToCopy(row, 0, row.length);
            copy.cancelCopy();
            is(0, value(connection, "select count(*) from jdbc_given_up"));
        }
    }

    private static void readOnly(Main.Target target) throws Exception {
        for (String mode : List.of("transaction", "always")) {
            try (Connection connection = connect(target, "readOnlyMode", mode)) {
                connection.setReadOnly(true);
                connection.setAutoCommit(false);
                fails("25006", connection, "create table never (n int)");
                connection.rollback();
                connection.setReadOnly(false);
                is("off", value(connection, "show transaction_read_only"));
                connection.commit();
            }
        }
    }

    private static void isolation(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            connection.setAutoCommit(false);
            for (int round = 0; round < 4; round++) {
                is("serializable", value(connection, "show transaction_isolation"));
                connection.commit();
            }
            is(Connection.TRANSACTION_SERIALIZABLE, connection.getTransactionIsolation());
        }
    }

    private static void cancel(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Statement statement = connection.createStatement()) {
            Timer timer = new Timer(true);
            timer.schedule(new TimerTask() {
                @Override
                public void run() {
                    try {
                        statement.cancel();
                    } catch (SQLException error) {
                        throw new IllegalStateException(error);
                    }
                }
            }, 300);
            fails("57014", () -> statement.execute("select pg_sleep(20)"));
            is(1, value(connection, "select 1"));
        }
    }

    private static void queryTimeout(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            fails("57014", () -> statement.execute("select pg_sleep(20)"));
            is(1, value(connection, "select 1"));
        }
    }

    private static void networkTimeout(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            connection.setNetworkTimeout(Runnable::run, 500);
            fails("08006", connection, "select pg_sleep(20)");
            is(true, connection.isClosed());
        }
    }

    private static void notifications(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Connection other = connect(target)) {
            execute(connection, "listen jdbc_news");
            execute(other, "select pg_notify('jdbc_news', 'hello')");
            PGNotification[] got = connection.unwrap(PGConnection.class).getNotifications(10000);
            is(1, got.length);
            is("hello", got[0].getParameter());
            execute(connection, "notify jdbc_news, 'own'");
            got = connection.unwrap(PGConnection.class).getNotifications(10000);
            is(connection.unwrap(PGConnection.class).getBackendPID(), got[0].getPID());
        }
    }

    private static void settings(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Connection other = connect(target)) {
            execute(connection, "set work_mem = '5MB'", "select set_config('weir.mark', 'mine', false)");
            connection.setClientInfo("ApplicationName", "renamed");
            connection.setAutoCommit(false);
            for (int round = 0; round < 4; round++) {
                is("5MB", value(connection, "show work_mem"));
                is("mine", value(connection, "select current_setting('weir.mark')"));
                is("renamed", value(connection, "show application_name"));
                connection.commit();
                is("4MB", value(other, "show work_mem"));
            }
        }
    }

    private static void schema(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Connection other = connect(target)) {
            execute(connection, "create schema jdbc_schema", "create table jdbc_schema.here (n int)");
            connection.setSchema("jdbc_schema");
            for (int round = 0; round < 7; round++) {
                is(0, value(connection, "select count(*) from here"));
                fails("42P01", other, "select count(*) from here");
            }
            is("jdbc_schema", connection.getSchema());
        }
    }

    private static void sessionState(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Connection other = connect(target)) {
            execute(connection, "create temp table jdbc_scratch (n int)", "insert into jdbc_scratch values (1)");
            is(1, value(connection, "select count(*) from jdbc_scratch"));
            fails("42P01", other, "select * from jdbc_scratch");
            execute(connection, "select pg_advisory_lock(77)");
            is("f", value(other, "select pg_try_advisory_lock(77)"));
            is("t", value(connection, "select pg_advisory_unlock(77)"));
        }
    }

    private static void severalResults(Main.Target target) throws Exception {
        try (Connection connection = connect(target); Statement statement = connection.createStatement()) {
            is(true, statement.execute("select 1; select 2"));
            is(true, statement.getMoreResults());
            ResultSet rows = statement.getResultSet();
            rows.next();
            is(2, rows.getInt(1));
        }
    }

    private static void metadata(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            execute(connection, "create table jdbc_described (id int primary key, t text)");
            try (ResultSet columns = connection.getMetaData().getColumns(null, null, "jdbc_described", null)) {
                int count = 0;
                while (columns.next()) {
                    count++;
                }
                is(2, count);
            }
        }
    }

    private static void largeValues(Main.Target target) throws Exception {
        try (Connection connection = connect(target)) {
            String text = "x".repeat(8_000_000);
            is(text, value(connection, "select ?::text", text));
        }
    }

    private static void valid(Main.Target target) throws Exception {
        Connection connection = connect(target);
        is(true, connection.isValid(5));
        connection.close();
        is(false, connection.isValid(5));
    }

    private static void threads(Main.Target target) throws Exception {
        var executor = Executors.newFixedThreadPool(30);
        try {
            var work = java.util.stream.IntStream.range(0, 30).mapToObj(mark -> executor.submit(() -> {
                try (Connection connection = connect(target)) {
                    for (int step = 0; step < 20; step++) {
                        is(mark + " " + step, value(connection, "select ?::text || ' ' || ?::text", mark, step));
                    }
                }
                return null;
            })).toList();
            for (var one : work) {
                one.get();
            }
        } finally {
            executor.shutdownNow();
        }
    }
}
