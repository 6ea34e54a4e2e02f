#!/usr/bin/env python3
"""What a PyMySQL program expects of a MySQL server: pymysql_check.py HOST PORT USER PASSWORD. Ends with "ok"."""
import datetime, decimal, os, sys, tempfile, threading, time
import pymysql

H, P, U, W = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]


def connect(**kw):
    return pymysql.connect(host=H, port=P, user=U, password=W, charset="utf8mb4", local_infile=True, **kw)


def fails(number, cursor, sql, *args):
    try:
        cursor.execute(sql, *args)
    except pymysql.err.MySQLError as e:
        assert e.args[0] == number, e
        return
    raise AssertionError("no error: " + sql)


def same(got, want):
    assert got == want, "got %r, want %r" % (got, want)


a = connect(autocommit=True)
k = a.cursor()
k.execute("DROP DATABASE IF EXISTS c_py")
k.execute("CREATE DATABASE c_py")
k.execute("USE c_py")
k.execute("SET time_zone = '+00:00'")

# The tour: create, insert, update, read the past.
k.execute("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(10,2), at DATETIME(6), note TEXT)")
same(k.executemany("INSERT INTO orders (customer, amount, at, note) VALUES (%s, %s, %s, %s)", [
    ("Ada", decimal.Decimal("10.50"), datetime.datetime(2024, 2, 29, 1, 2, 3, 456789), "zażółć 🐟"),
    ("Bob", None, None, None),
    ("Eve", decimal.Decimal("-0.01"), datetime.datetime(1999, 12, 31), "it's \\ \"quoted\""),
]), 3)
same(k.lastrowid, 1)
k.execute("SELECT NOW(6)")
before = k.fetchone()[0]
time.sleep(0.05)
same(k.execute("UPDATE orders SET amount = amount * 2, note = 'paid' WHERE id = 1"), 1)
same(k.execute("DELETE FROM orders WHERE id = 2"), 1)
k.execute("SELECT id, customer, amount, note FROM orders ORDER BY id")
same(k.fetchall(), ((1, "Ada", decimal.Decimal("21.00"), "paid"), (3, "Eve", decimal.Decimal("-0.01"), "it's \\ \"quoted\"")))
if not os.environ.get("LAKESQL_REFERENCE"):  # another server: no AS OF
    k.execute("SELECT id, amount, at, note FROM orders AS OF %s ORDER BY id", (str(before),))
    same(k.fetchall(), ((1, decimal.Decimal("10.50"), datetime.datetime(2024, 2, 29, 1, 2, 3, 456789), "zażółć 🐟"), (2, None, None, None),
                        (3, decimal.Decimal("-0.01"), datetime.datetime(1999, 12, 31), "it's \\ \"quoted\"")))
    k.execute("SELECT COUNT(*) FROM orders TIMESTAMP AS OF %s o JOIN orders n ON o.id = n.id", (str(before),))
    same(k.fetchone(), (2,))

# Errors: MySQL's numbers, and nothing changes.
fails(1062, k, "INSERT INTO orders (id, customer) VALUES (9, 'x'), (1, 'y')")
fails(1146, k, "SELECT * FROM missing")
fails(1048, k, "INSERT INTO orders (customer) VALUES (NULL)")
fails(1064, k, "SELEC 1")
k.execute("SELECT COUNT(*) FROM orders")
same(k.fetchone(), (2,))

# Transactions: rollback, savepoint, isolation between two connections.
b = connect(database="c_py", autocommit=False)
kb = b.cursor()
kb.execute("INSERT INTO orders (customer) VALUES ('Tom')")
k.execute("SELECT COUNT(*) FROM orders")
same(k.fetchone(), (2,))
kb.execute("SAVEPOINT s")
kb.execute("UPDATE orders SET customer = 'nobody'")
kb.execute("ROLLBACK TO SAVEPOINT s")
kb.execute("SELECT COUNT(*) FROM orders WHERE customer = 'nobody'")
same(kb.fetchone(), (0,))
b.commit()
k.execute("SELECT COUNT(*) FROM orders")
same(k.fetchone(), (3,))
kb.execute("DELETE FROM orders")
b.rollback()
k.execute("SELECT COUNT(*) FROM orders")
same(k.fetchone(), (3,))

# SQL's PREPARE, with typed parameters.
k.execute("PREPARE p FROM 'SELECT customer FROM orders WHERE id = ? AND amount > ?'")
k.execute("SET @id = 1, @least = 20")
k.execute("EXECUTE p USING @id, @least")
same(k.fetchall(), (("Ada",),))
k.execute("DEALLOCATE PREPARE p")

# LOAD DATA LOCAL INFILE sends a file of the client's.
k.execute("CREATE TABLE loaded (id INT PRIMARY KEY, v VARCHAR(20))")
with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as f:
    f.write('1,"a,b"\n2,\\N\n')
same(k.execute("LOAD DATA LOCAL INFILE '%s' INTO TABLE loaded FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"'" % f.name), 2)
os.remove(f.name)
k.execute("SELECT * FROM loaded ORDER BY id")
same(k.fetchall(), ((1, "a,b"), (2, None)))

# Bytes and unbuffered results.
k.execute("CREATE TABLE bin (id INT PRIMARY KEY, b VARBINARY(300))")
k.execute("INSERT INTO bin VALUES (1, %s)", (bytes(range(256)),))
k.execute("SELECT b FROM bin")
same(k.fetchone(), (bytes(range(256)),))
s = connect(database="c_py", cursorclass=pymysql.cursors.SSCursor).cursor()
s.execute("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i FROM n")
same(sum(r[0] for r in s), 900 * 901 // 2)

# 8 connections add to one row: nothing is lost.
k.execute("CREATE TABLE counter (id INT PRIMARY KEY, f INT)")
k.execute("INSERT INTO counter VALUES (1, 0), (2, 0)")
problems = []


def add():
    try:
        c = connect(database="c_py")
        u = c.cursor()
        for _ in range(10):
            u.execute("UPDATE counter SET f = f + 1 WHERE id = 1")
            c.commit()
            u.execute("SELECT f FROM counter WHERE id = 2 FOR UPDATE")
            u.execute("UPDATE counter SET f = %s WHERE id = 2", (u.fetchone()[0] + 1,))
            c.commit()
        c.close()
    except Exception as e:
        problems.append(e)


threads = [threading.Thread(target=add) for _ in range(8)]
for x in threads:
    x.start()
for x in threads:
    x.join()
same(problems, [])
k.execute("SELECT f FROM counter ORDER BY id")
same(k.fetchall(), ((80,), (80,)))

k.execute("DROP DATABASE c_py")
print("ok")
