package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var background = context.Background()

// state is the SQLSTATE of an error of the server.
func state(err error) string {
	var found *pgconn.PgError
	if errors.As(err, &found) {
		return found.Code
	}
	return fmt.Sprint(err)
}

// connected runs body with so many connections.
func connected(url string, count int, body func(conns []*pgx.Conn) error) error {
	var conns []*pgx.Conn
	for range count {
		conn, err := pgx.Connect(background, url)
		if err != nil {
			return err
		}
		defer conn.Close(background)
		conns = append(conns, conn)
	}
	return body(conns)
}

// value scans one row of one column.
func value[T any](conn interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, query string, words ...any) (T, error) {
	var got T
	err := conn.QueryRow(background, query, words...).Scan(&got)
	return got, err
}

// is checks the value of a query.
func is[T any](conn *pgx.Conn, want T, query string, words ...any) error {
	got, err := value[T](conn, query, words...)
	return all(err, equal(got, want))
}

func exec(conn *pgx.Conn, query string, words ...any) error {
	_, err := conn.Exec(background, query, words...)
	return err
}

// fails checks the SQLSTATE that a statement ends with.
func fails(conn *pgx.Conn, want, query string, words ...any) error {
	return equal(state(exec(conn, query, words...)), want)
}

var pgxChecks = []check{
	{"connects and selects", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			return all(is(c[0], "app", "select current_user"), is(c[0], int32(3), "select $1::int + 1", 2))
		})
	}},
	{"a wrong password is refused", func(url string) error {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		config.Password = "wrong"
		_, err = pgx.ConnectConfig(background, config)
		return equal(state(err), "28P01")
	}},
	{"runtime parameters take effect", func(url string) error {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		config.RuntimeParams["application_name"], config.RuntimeParams["search_path"] = "pgx", "pg_catalog"
		conn, err := pgx.ConnectConfig(background, config)
		if err != nil {
			return err
		}
		defer conn.Close(background)
		return all(is(conn, "pgx", "show application_name"), is(conn, "pg_catalog", "show search_path"))
	}},
	{"every mode of execution", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
				pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
			for _, mode := range modes {
				for number := range 5 {
					if err := is(c[0], int32(number), "select $1::int", mode, number); err != nil {
						return fmt.Errorf("%v: %w", mode, err)
					}
				}
			}
			return nil
		})
	}},
	{"cached statements survive transactions", func(url string) error {
		return connected(url, 2, func(c []*pgx.Conn) error {
			for number := range 20 {
				err := pgx.BeginFunc(background, c[number%2], func(tx pgx.Tx) error {
					got, err := value[int32](tx, "select $1::int * 2", number)
					return all(err, equal(got, int32(2*number)))
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"named prepared statements", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			if _, err := c[0].Prepare(background, "twice", "select $1::int * 2"); err != nil {
				return err
			}
			for number := range 5 {
				if err := is(c[0], int32(2*number), "twice", number); err != nil {
					return err
				}
			}
			return all(c[0].Deallocate(background, "twice"), fails(c[0], "42601", "twice", 1))
		})
	}},
	{"more statements than the cache holds", func(url string) error {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		config.StatementCacheCapacity = 5
		conn, err := pgx.ConnectConfig(background, config)
		if err != nil {
			return err
		}
		defer conn.Close(background)
		for round := range 3 {
			for number := range 30 {
				if err := is(conn, int32(round+number), fmt.Sprintf("select $1::int + %d", number), round); err != nil {
					return err
				}
			}
		}
		return nil
	}},
	{"a changed table is noticed", func(url string) error {
		return connected(url, 2, func(c []*pgx.Conn) error {
			read := func(want int) error {
				rows, err := c[0].Query(background, "select * from pgx_changing")
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
					values, err := rows.Values()
					if err := all(err, equal(len(values), want)); err != nil {
						return err
					}
				}
				return rows.Err()
			}
			err := all(exec(c[1], "create table pgx_changing (a int)"), exec(c[1], "insert into pgx_changing values (1)"), read(1))
			if err := all(err, exec(c[1], "alter table pgx_changing add column b int")); err != nil {
				return err
			}
			// The first use may fail: pgx then forgets the statement.
			if err := read(2); err != nil && state(err) != "0A000" {
				return err
			}
			return read(2)
		})
	}},
	{"transactions and savepoints", func(url string) error {
		return connected(url, 2, func(c []*pgx.Conn) error {
			if err := exec(c[0], "create table pgx_money (n int unique)"); err != nil {
				return err
			}
			err := pgx.BeginFunc(background, c[0], func(tx pgx.Tx) error {
				if _, err := tx.Exec(background, "insert into pgx_money values (1)"); err != nil {
					return err
				}
				inner := pgx.BeginFunc(background, tx, func(tx pgx.Tx) error {
					_, err := tx.Exec(background, "insert into pgx_money values (2), (1)")
					return err
				})
				if err := all(equal(state(inner), "23505"), is(c[1], int64(0), "select count(*) from pgx_money")); err != nil {
					return err
				}
				_, err := tx.Exec(background, "insert into pgx_money values (3)")
				return err
			})
			return all(err, is(c[1], int64(4), "select sum(n) from pgx_money"))
		})
	}},
	{"isolation levels and access modes", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			options := pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable}
			tx, err := c[0].BeginTx(background, options)
			if err != nil {
				return err
			}
			got, err := value[string](tx, "show transaction_isolation")
			_, refusal := tx.Exec(background, "create table never (n int)")
			return all(err, equal(got, "serializable"), equal(state(refusal), "25006"), tx.Rollback(background))
		})
	}},
	{"a batch has its results in order", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			batch := &pgx.Batch{}
			for number := range 300 {
				batch.Queue("select $1::int", number)
			}
			results := c[0].SendBatch(background, batch)
			defer results.Close()
			for number := range 300 {
				var got int
				if err := all(results.QueryRow().Scan(&got), equal(got, number)); err != nil {
					return err
				}
			}
			return results.Close()
		})
	}},
	{"an error in a batch undoes it", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			batch := &pgx.Batch{}
			batch.Queue("insert into pgx_batch values ($1)", 1)
			batch.Queue("select 1/$1::int", 0)
			batch.Queue("insert into pgx_batch values ($1)", 2)
			err := exec(c[0], "create table pgx_batch (n int)")
			return all(err, equal(state(c[0].SendBatch(background, batch).Close()), "22012"),
				is(c[0], int64(0), "select count(*) from pgx_batch"))
		})
	}},
	{"a pipeline with several syncs", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			pipe := c[0].PgConn().StartPipeline(background)
			for _, query := range []string{"select 1", "select 1/0", "select 3"} {
				pipe.SendQueryParams(query, nil, nil, nil, nil)
				if err := pipe.Sync(); err != nil {
					return err
				}
			}
			var kinds []string
			for {
				result, err := pipe.GetResults()
				if err != nil {
					kinds = append(kinds, state(err))
					continue
				}
				switch result := result.(type) {
				case *pgconn.ResultReader:
					kinds = append(kinds, string(result.Read().Rows[0][0]))
				case *pgconn.PipelineSync:
					kinds = append(kinds, "sync")
				}
				if result == nil {
					break
				}
			}
			return all(equal(strings.Join(kinds, " "), "1 sync 22012 sync 3 sync"), pipe.Close())
		})
	}},
	{"copy of rows in binary", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			if err := exec(c[0], "create table pgx_copied (n int, t text, at timestamptz)"); err != nil {
				return err
			}
			rows := pgx.CopyFromSlice(20000, func(n int) ([]any, error) {
				return []any{n, fmt.Sprint("row ", n), time.Unix(int64(n), 0)}, nil
			})
			count, err := c[0].CopyFrom(background, pgx.Identifier{"pgx_copied"}, []string{"n", "t", "at"}, rows)
			return all(err, equal(count, int64(20000)), is(c[0], int64(199990000), "select sum(n) from pgx_copied"))
		})
	}},
	{"a copy whose source fails changes nothing", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			if err := exec(c[0], "create table pgx_no_source (n int)"); err != nil {
				return err
			}
			rows := pgx.CopyFromSlice(5000, func(n int) ([]any, error) {
				if n == 4000 {
					return nil, errors.New("no more")
				}
				return []any{n}, nil
			})
			if _, err := c[0].CopyFrom(background, pgx.Identifier{"pgx_no_source"}, []string{"n"}, rows); err == nil {
				return errors.New("no error")
			}
			return is(c[0], int64(0), "select count(*) from pgx_no_source")
		})
	}},
	{"copy of text in and out", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			if err := exec(c[0], "create table pgx_text (n int)"); err != nil {
				return err
			}
			raw := c[0].PgConn()
			_, err := raw.CopyFrom(background, strings.NewReader(strings.Repeat("7\n", 30000)), "copy pgx_text from stdin")
			if err != nil {
				return err
			}
			bad := strings.NewReader("1\nx\n" + strings.Repeat("2\n", 300000))
			_, err = raw.CopyFrom(background, bad, "copy pgx_text from stdin")
			if err := equal(state(err), "22P02"); err != nil {
				return err
			}
			var out strings.Builder
			tag, err := raw.CopyTo(background, &out, "copy pgx_text to stdout")
			return all(err, equal(tag.RowsAffected(), int64(30000)), equal(out.Len(), 60000))
		})
	}},
	{"notifications are awaited", func(url string) error {
		return connected(url, 2, func(c []*pgx.Conn) error {
			if err := all(exec(c[0], "listen pgx_news"), exec(c[1], "select pg_notify('pgx_news', 'hello')")); err != nil {
				return err
			}
			limit, stop := context.WithTimeout(background, 10*time.Second)
			defer stop()
			note, err := c[0].WaitForNotification(limit)
			if err != nil {
				return err
			}
			short, stop := context.WithTimeout(background, 300*time.Millisecond)
			defer stop()
			// A wait that ends by its context leaves the connection usable.
			_, err = c[0].WaitForNotification(short)
			if !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("%v instead of a deadline", err)
			}
			return all(equal(note.Payload, "hello"), is(c[0], int32(1), "select 1"))
		})
	}},
	{"an own notification has the own process id", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			if err := all(exec(c[0], "listen pgx_own"), exec(c[0], "notify pgx_own")); err != nil {
				return err
			}
			limit, stop := context.WithTimeout(background, 10*time.Second)
			defer stop()
			note, err := c[0].WaitForNotification(limit)
			return all(err, equal(note.PID, c[0].PgConn().PID()))
		})
	}},
	{"a context cancels its query", func(url string) error {
		return connected(url, 2, func(c []*pgx.Conn) error {
			limit, stop := context.WithTimeout(background, 300*time.Millisecond)
			defer stop()
			if _, err := c[0].Exec(limit, "select pg_sleep(20) /* pgx cancels */"); err == nil {
				return errors.New("no error")
			}
			deadline := time.Now().Add(10 * time.Second)
			for {
				got, err := value[int64](c[1], "select count(*) from pg_stat_activity where query like '%pgx cancels%' and state = 'active' and pid <> pg_backend_pid()")
				if err != nil || got == 0 {
					return err
				}
				if time.Now().After(deadline) {
					return errors.New("the query still runs")
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}},
	{"a cancel request keeps the connection", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			go func() {
				time.Sleep(300 * time.Millisecond)
				_ = c[0].PgConn().CancelRequest(background)
			}()
			return all(fails(c[0], "57014", "select pg_sleep(20)"), is(c[0], int32(1), "select 1"))
		})
	}},
	{"settings last over transactions", func(url string) error {
		return connected(url, 2, func(c []*pgx.Conn) error {
			err := all(exec(c[0], "set work_mem = '5MB'"), exec(c[0], "select set_config('weir.mark', 'mine', false)"))
			for range 4 {
				err = all(err, is(c[0], "5MB", "show work_mem"), is(c[0], "mine", "select current_setting('weir.mark')"),
					is(c[1], "4MB", "show work_mem"), is(c[1], "", "select coalesce(current_setting('weir.mark', true), '')"))
			}
			return err
		})
	}},
	{"temporary tables and locks are those of the connection", func(url string) error {
		return connected(url, 2, func(c []*pgx.Conn) error {
			return all(exec(c[0], "create temp table pgx_scratch (n int)"), exec(c[0], "insert into pgx_scratch values (1)"),
				is(c[0], int64(1), "select count(*) from pgx_scratch"), fails(c[1], "42P01", "select * from pgx_scratch"),
				exec(c[0], "select pg_advisory_lock(99)"), is(c[1], false, "select pg_try_advisory_lock(99)"),
				is(c[0], true, "select pg_advisory_unlock(99)"), is(c[1], true, "select pg_try_advisory_lock(99)"),
				is(c[1], true, "select pg_advisory_unlock(99)"))
		})
	}},
	{"several statements in a simple query", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			results, err := c[0].PgConn().Exec(background, "select 1; select 2; select 3").ReadAll()
			return all(err, equal(len(results), 3))
		})
	}},
	{"large values", func(url string) error {
		return connected(url, 1, func(c []*pgx.Conn) error {
			text := strings.Repeat("x", 8_000_000)
			return all(is(c[0], text, "select $1::text", text), is(c[0], int32(8_000_000), "select length($1)", text))
		})
	}},
	{"a pool gives each task its own connection", func(url string) error {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			return err
		}
		config.MaxConns = 6
		pool, err := pgxpool.NewWithConfig(background, config)
		if err != nil {
			return err
		}
		defer pool.Close()
		var group sync.WaitGroup
		problems := make(chan error, 1000)
		for mark := range 40 {
			group.Go(func() {
				for step := range 10 {
					got, err := value[string](pool, "select $1::text || $2::text", fmt.Sprint(mark), fmt.Sprint(step))
					if err := all(err, equal(got, fmt.Sprint(mark, "")+fmt.Sprint(step))); err != nil {
						problems <- err
					}
				}
			})
		}
		group.Wait()
		close(problems)
		return <-problems
	}},
}
