package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lib/pq"
)

// opened runs body with a pool of so many connections.
func opened(url string, count int, body func(db *sql.DB) error) error {
	return openedWith(url+"?sslmode=disable", count, body)
}

func openedWith(url string, count int, body func(db *sql.DB) error) error {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(count)
	return body(db)
}

// pqState is the SQLSTATE of an error of the server.
func pqState(err error) string {
	var found *pq.Error
	if errors.As(err, &found) {
		return string(found.Code)
	}
	return fmt.Sprint(err)
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, words ...any) *sql.Row
}

// has checks the value of a query.
func has[T any](db querier, want T, query string, words ...any) error {
	var got T
	err := db.QueryRowContext(background, query, words...).Scan(&got)
	return all(err, equal(got, want))
}

type executor interface {
	ExecContext(ctx context.Context, query string, words ...any) (sql.Result, error)
}

func does(db executor, queries ...string) error {
	for _, query := range queries {
		if _, err := db.ExecContext(background, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

var pqChecks = []check{
	{"connects and selects", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			return all(has(db, "app", "select current_user"), has(db, 3, "select $1::int + 1", 2))
		})
	}},
	{"parameters in binary", func(url string) error {
		return openedWith(url+"?sslmode=disable&binary_parameters=yes", 1, func(db *sql.DB) error {
			return all(has(db, "x", "select $1::text", "x"), has(db, 3, "select length($1::bytea)", []byte{0, 1, 255}))
		})
	}},
	{"prepared statements on every connection of a pool", func(url string) error {
		return opened(url, 4, func(db *sql.DB) error {
			statement, err := db.Prepare("select $1::int * 2")
			if err != nil {
				return err
			}
			defer statement.Close()
			var group sync.WaitGroup
			problems := make(chan error, 1000)
			for number := range 40 {
				group.Go(func() {
					var got int
					if err := all(statement.QueryRow(number).Scan(&got), equal(got, 2*number)); err != nil {
						problems <- err
					}
				})
			}
			group.Wait()
			close(problems)
			return <-problems
		})
	}},
	{"transactions commit and roll back", func(url string) error {
		return opened(url, 3, func(db *sql.DB) error {
			if err := does(db, "create table pq_money (n int)"); err != nil {
				return err
			}
			for number, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
				tx, err := db.BeginTx(background, &sql.TxOptions{Isolation: sql.LevelSerializable})
				if err != nil {
					return err
				}
				if _, err := tx.Exec("insert into pq_money values ($1)", number); err != nil {
					return err
				}
				if err := end(tx); err != nil {
					return err
				}
			}
			return has(db, 1, "select count(*) from pq_money")
		})
	}},
	{"a failed block refuses statements", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			_, first := tx.Exec("select 1/0")
			_, second := tx.Exec("select 1")
			err = tx.Rollback()
			return all(err, equal(pqState(first), "22012"), equal(pqState(second), "25P02"), has(db, 1, "select 1"))
		})
	}},
	{"a read-only transaction refuses writes", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			tx, err := db.BeginTx(background, &sql.TxOptions{ReadOnly: true})
			if err != nil {
				return err
			}
			_, err = tx.Exec("create table never (n int)")
			return all(equal(pqState(err), "25006"), tx.Rollback(), has(db, "off", "show transaction_read_only"))
		})
	}},
	{"copy in", func(url string) error {
		return opened(url, 2, func(db *sql.DB) error {
			if err := does(db, "create table pq_copied (n int, t text)"); err != nil {
				return err
			}
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			statement, err := tx.Prepare(`copy pq_copied (n, t) from stdin`)
			if err != nil {
				return err
			}
			for number := range 5000 {
				if _, err := statement.Exec(number, fmt.Sprint("row\t", number)); err != nil {
					return err
				}
			}
			if _, err := statement.Exec(); err != nil {
				return err
			}
			return all(statement.Close(), tx.Commit(), has(db, 5000, "select count(*) from pq_copied where t like 'row%'"))
		})
	}},
	{"a context cancels its query", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			limit, stop := context.WithTimeout(background, 300*time.Millisecond)
			defer stop()
			begun := time.Now()
			_, err := db.ExecContext(limit, "select pg_sleep(20)")
			if err == nil || time.Since(begun) > 10*time.Second {
				return fmt.Errorf("%v after %v", err, time.Since(begun))
			}
			return has(db, 1, "select 1")
		})
	}},
	{"a listener hears", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			listener := pq.NewListener(url+"?sslmode=disable", time.Second, time.Minute, nil)
			defer listener.Close()
			if err := all(listener.Listen("pq_news"), listener.Listen("pq_more"), listener.Ping()); err != nil {
				return err
			}
			if err := does(db, "select pg_notify('pq_news', 'hello')"); err != nil {
				return err
			}
			select {
			case note := <-listener.Notify:
				return all(equal(note.Extra, "hello"), listener.Unlisten("pq_news"), listener.Ping())
			case <-time.After(10 * time.Second):
				return errors.New("no notification")
			}
		})
	}},
	{"settings of one connection last", func(url string) error {
		return opened(url, 2, func(db *sql.DB) error {
			one, err := db.Conn(background)
			if err != nil {
				return err
			}
			defer one.Close()
			two, err := db.Conn(background)
			if err != nil {
				return err
			}
			defer two.Close()
			err = does(one, "set work_mem = '5MB'", "set search_path = pg_catalog")
			for range 4 {
				err = all(err, has(one, "5MB", "show work_mem"), has(one, "pg_catalog", "show search_path"), has(two, "4MB", "show work_mem"))
			}
			return err
		})
	}},
	{"arrays and errors have their fields", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			var got []int64
			err := db.QueryRow("select $1::int8[]", pq.Array([]int64{1, 2, 3})).Scan(pq.Array(&got))
			_, wrong := db.Exec("select missing from pg_class")
			var found *pq.Error
			if !errors.As(wrong, &found) {
				return fmt.Errorf("%v is no error of the server", wrong)
			}
			return all(err, equal(got, []int64{1, 2, 3}), equal(found.Position, "8"), equal(string(found.Code), "42703"))
		})
	}},
	{"several result sets of one text", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			rows, err := db.Query("select 1; select 2; select 3")
			if err != nil {
				return err
			}
			defer rows.Close()
			sum := 0
			for more := true; more; more = rows.NextResultSet() {
				for rows.Next() {
					var got int
					if err := rows.Scan(&got); err != nil {
						return err
					}
					sum += got
				}
			}
			return all(rows.Err(), equal(sum, 6))
		})
	}},
	{"rows that are not read to the end", func(url string) error {
		return opened(url, 1, func(db *sql.DB) error {
			rows, err := db.Query("select generate_series(1, 100000)")
			if err != nil {
				return err
			}
			rows.Next()
			return all(rows.Close(), has(db, 1, "select 1"))
		})
	}},
	{"many short connections", func(url string) error {
		return opened(url, 10, func(db *sql.DB) error {
			db.SetMaxIdleConns(0)
			var group sync.WaitGroup
			problems := make(chan error, 1000)
			for mark := range 60 {
				group.Go(func() {
					if err := has(db, mark, "select $1::int", mark); err != nil {
						problems <- err
					}
				})
			}
			group.Wait()
			close(problems)
			return <-problems
		})
	}},
}
