import java.math.BigDecimal;
import java.sql.*;
import java.util.Properties;

/** What a JDBC program expects of a MySQL server: JdbcCheck HOST PORT USER PASSWORD. Ends with "ok". */
public class JdbcCheck {
    static String host, port, user, password;

    static Connection connect(String... options) throws SQLException {
        Properties p = new Properties();
        p.put("user", user);
        p.put("password", password);
        p.put("sslMode", "DISABLED");
        p.put("allowPublicKeyRetrieval", "true");
        p.put("connectionTimeZone", "UTC");
        p.put("allowMultiQueries", "true");
        for (String o : options) p.put(o.split("=")[0], o.split("=")[1]);
        return DriverManager.getConnection("jdbc:mysql://" + host + ":" + port + "/c_jdbc?createDatabaseIfNotExist=true", p);
    }

    static void same(Object got, Object want) {
        if (got == null ? want != null : !got.equals(want)) throw new AssertionError("got " + got + ", want " + want);
    }

    static void fails(Connection c, int number, String state, String sql) throws SQLException {
        try (Statement s = c.createStatement()) {
            s.execute(sql);
        } catch (SQLException e) {
            same(e.getErrorCode(), number);
            same(e.getSQLState(), state);
            return;
        }
        throw new AssertionError("no error: " + sql);
    }

    static long count(Connection c, String from) throws SQLException {
        try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT COUNT(*) FROM " + from)) {
            r.next();
            return r.getLong(1);
        }
    }

    /** Everything, with parameters put in by the driver (false) or bound by the server (true). */
    static void check(boolean serverSide) throws Exception {
        try (Connection c = connect("useServerPrepStmts=" + serverSide)) {
            boolean mariadb = c.getMetaData().getDatabaseProductVersion().contains("MariaDB");
            try (Statement s = c.createStatement()) {
                s.execute("DROP TABLE IF EXISTS orders");
                s.execute("CREATE TABLE orders (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(20,4), at DATETIME(6), d DOUBLE, b VARBINARY(300), ok BOOLEAN, note TEXT)");
            }

            // The tour, with prepared statements.
            byte[] bytes = new byte[256];
            for (int i = 0; i < 256; i++) bytes[i] = (byte) i;
            // The driver takes MariaDB for MySQL 5.5, to which it sends no fractions.
            Timestamp at = Timestamp.valueOf("2024-02-29 01:02:03" + (mariadb ? "" : ".456789"));
            try (PreparedStatement p = c.prepareStatement("INSERT INTO orders (customer, amount, at, d, b, ok, note) VALUES (?, ?, ?, ?, ?, ?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                p.setString(1, "Zoë 🐟");
                p.setBigDecimal(2, new BigDecimal("1234567890123456.7890"));
                p.setTimestamp(3, at);
                p.setDouble(4, 0.1);
                p.setBytes(5, bytes);
                p.setBoolean(6, true);
                p.setNull(7, Types.VARCHAR);
                same(p.executeUpdate(), 1);
                try (ResultSet r = p.getGeneratedKeys()) {
                    r.next();
                    same(r.getLong(1), 1L);
                }
                for (int i = 2; i <= 300; i++) {
                    p.setString(1, "customer " + i);
                    p.setBigDecimal(2, BigDecimal.valueOf(i));
                    p.setNull(3, Types.TIMESTAMP);
                    p.addBatch();
                }
                same(p.executeBatch().length, 299);
            }
            String before;
            try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT NOW(6)")) {
                r.next();
                before = r.getString(1);
            }
            Thread.sleep(50);
            try (PreparedStatement p = c.prepareStatement("UPDATE orders SET amount = amount + ? WHERE id BETWEEN ? AND ?")) {
                p.setBigDecimal(1, new BigDecimal("0.0001"));
                p.setInt(2, 1);
                p.setInt(3, 10);
                same(p.executeUpdate(), 10);
            }
            try (PreparedStatement p = c.prepareStatement("SELECT customer, amount, at, d, b, ok, note, id FROM orders WHERE id = ?")) {
                p.setLong(1, 1);
                try (ResultSet r = p.executeQuery()) {
                    r.next();
                    same(r.getString(1), "Zoë 🐟");
                    same(r.getBigDecimal(2), new BigDecimal("1234567890123456.7891"));
                    same(r.getTimestamp(3), at);
                    same(r.getDouble(4), 0.1);
                    same(new java.math.BigInteger(1, r.getBytes(5)), new java.math.BigInteger(1, bytes));
                    same(r.getBoolean(6), true);
                    same(r.getString(7), null);
                    same(r.getLong(8), 1L);
                    same(r.next(), false);
                }
            }
            if (System.getenv("LAKESQL_REFERENCE") == null) { // another server: no AS OF
                for (String clause : new String[] {"AS OF", "TIMESTAMP AS OF", "FOR SYSTEM_TIME AS OF"}) {
                    try (PreparedStatement p = c.prepareStatement("SELECT SUM(amount) FROM orders " + clause + " ? WHERE id BETWEEN ? AND ?")) {
                        for (int round = 0; round < 2; round++) {
                            p.setString(1, before);
                            p.setInt(2, 2);
                            p.setInt(3, 10);
                            try (ResultSet r = p.executeQuery()) {
                                r.next();
                                same(r.getBigDecimal(1).compareTo(new BigDecimal("54")), 0);
                            }
                        }
                    }
                }
            }

            // Errors carry number and SQLSTATE.
            fails(c, 1062, "23000", "INSERT INTO orders (id, customer) VALUES (1, 'again')");
            fails(c, 1146, "42S02", "SELECT * FROM missing");
            fails(c, 1048, "23000", "INSERT INTO orders (customer) VALUES (NULL)");
            fails(c, 1064, "42000", "SELEC 1");

            // Transactions and savepoints, seen from a second connection.
            try (Connection other = connect()) {
                c.setAutoCommit(false);
                try (Statement s = c.createStatement()) {
                    s.executeUpdate("DELETE FROM orders WHERE id > 100");
                    Savepoint mark = c.setSavepoint("mark");
                    s.executeUpdate("DELETE FROM orders");
                    same(count(c, "orders"), 0L);
                    c.rollback(mark);
                    same(count(c, "orders"), 100L);
                    same(count(other, "orders"), 300L);
                    c.rollback();
                    same(count(c, "orders"), 300L);
                    s.executeUpdate("DELETE FROM orders WHERE id > 200");
                    c.commit();
                    same(count(other, "orders"), 200L);
                }
                c.setAutoCommit(true);
            }

            // Metadata as tools ask for it.
            try (ResultSet r = c.getMetaData().getPrimaryKeys("c_jdbc", null, "orders")) {
                same(r.next(), true);
                same(r.getString("COLUMN_NAME"), "id");
            }
            try (ResultSet r = c.getMetaData().getColumns("c_jdbc", null, "orders", "amount")) {
                same(r.next(), true);
                same(r.getInt("COLUMN_SIZE"), 20);
                same(r.getInt("DECIMAL_DIGITS"), 4);
            }
        }
        // A cursor on the server, read in pieces.
        try (Connection c = connect("useCursorFetch=true", "defaultFetchSize=64")) {
            try (PreparedStatement p = c.prepareStatement("SELECT id FROM c_jdbc.orders WHERE id > ? ORDER BY id")) {
                p.setInt(1, 0);
                long n = 0, sum = 0;
                try (ResultSet r = p.executeQuery()) {
                    while (r.next()) {
                        n++;
                        sum += r.getLong(1);
                    }
                }
                same(n, 200L);
                same(sum, 200L * 201 / 2);
            }
            try (Statement s = c.createStatement()) {
                s.execute("DROP TABLE orders");
            }
        }
    }

    /** 8 connections add to one row, each statement by itself and read with FOR UPDATE: nothing is lost. */
    static void counters(boolean serverSide) throws Exception {
        try (Connection c = connect(); Statement s = c.createStatement()) {
            s.execute("DROP TABLE IF EXISTS counter");
            s.execute("CREATE TABLE counter (id INT PRIMARY KEY, f INT)");
            s.execute("INSERT INTO counter VALUES (1, 0), (2, 0)");
            Throwable[] problem = new Throwable[1];
            Thread[] threads = new Thread[8];
            for (int t = 0; t < threads.length; t++) {
                threads[t] = new Thread(() -> {
                    try (Connection w = connect("useServerPrepStmts=" + serverSide);
                            PreparedStatement add = w.prepareStatement("UPDATE counter SET f = f + 1 WHERE id = ?");
                            PreparedStatement read = w.prepareStatement("SELECT f FROM counter WHERE id = ? FOR UPDATE");
                            PreparedStatement set = w.prepareStatement("UPDATE counter SET f = ? WHERE id = 2")) {
                        for (int i = 0; i < 10; i++) {
                            w.setAutoCommit(true);
                            add.setInt(1, 1);
                            same(add.executeUpdate(), 1);
                            w.setAutoCommit(false);
                            read.setInt(1, 2);
                            try (ResultSet r = read.executeQuery()) {
                                r.next();
                                set.setInt(1, r.getInt(1) + 1);
                            }
                            same(set.executeUpdate(), 1);
                            w.commit();
                        }
                    } catch (Throwable e) {
                        problem[0] = e;
                    }
                });
                threads[t].start();
            }
            for (Thread t : threads) t.join();
            if (problem[0] != null) throw new AssertionError(problem[0]);
            same(count(c, "counter WHERE f = 80"), 2L);
            s.execute("DROP TABLE counter");
        }
    }

    public static void main(String[] a) throws Exception {
        host = a[0];
        port = a[1];
        user = a[2];
        password = a.length > 3 ? a[3] : "";
        check(false);
        check(true);
        counters(false);
        counters(true);
        System.out.println("ok");
    }
}
