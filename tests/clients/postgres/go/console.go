package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"
)

// consoleChecks use the admin console by the extended protocol, as monitoring programs do.
var consoleChecks = []check{
	{"pgx describes, caches and reads numbers as binary", func(url string) error {
		return withConsole(url, func(ctx context.Context, conn *pgx.Conn) error {
			for range 3 {
				rows, err := conn.Query(ctx, "SHOW STATS_TOTALS")
				if err != nil {
					return err
				}
				found, err := pgx.CollectRows(rows, pgx.RowToMap)
				if err != nil {
					return err
				}
				if len(found) == 0 {
					return fmt.Errorf("no row")
				}
				transactions := int64(0)
				for _, row := range found {
					if _, isText := row["database"].(string); !isText {
						return fmt.Errorf("database is %T", row["database"])
					}
					count, isNumber := row["xact_count"].(int64)
					if !isNumber || count < 0 || count > 1000 {
						return fmt.Errorf("xact_count is %#v", row["xact_count"])
					}
					transactions += count
				}
				if transactions < 1 {
					return fmt.Errorf("no transaction is counted")
				}
			}
			return nil
		})
	}},
	{"pgx runs commands without rows", func(url string) error {
		return withConsole(url, func(ctx context.Context, conn *pgx.Conn) error {
			tag, err := conn.Exec(ctx, "RESUME", pgx.QueryExecModeDescribeExec)
			return all(err, equal(tag.String(), "RESUME"))
		})
	}},
	{"an error in a batch skips to its Sync", func(url string) error {
		return withConsole(url, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SHOW NOTHING", pgx.QueryExecModeCacheDescribe)
			if err == nil {
				return fmt.Errorf("no error")
			}
			var version string
			return all(conn.QueryRow(ctx, "SHOW VERSION").Scan(&version), equal(version[:9], "PgBouncer"))
		})
	}},
	{"a parameter is refused", func(url string) error {
		return withConsole(url, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SHOW POOLS", pgx.QueryExecModeExec, 7)
			if err == nil {
				return fmt.Errorf("no error")
			}
			return conn.Ping(ctx)
		})
	}},
	{"lib/pq prepares", func(url string) error {
		db, err := sql.Open("postgres", url+"?sslmode=disable&binary_parameters=yes")
		if err != nil {
			return err
		}
		defer db.Close()
		statement, err := db.Prepare("SHOW LISTS")
		if err != nil {
			return err
		}
		defer statement.Close()
		rows, err := statement.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		lists := map[string]int{}
		for rows.Next() {
			var name string
			var items int
			if err := rows.Scan(&name, &items); err != nil {
				return err
			}
			lists[name] = items
		}
		return all(rows.Err(), equal(lists["used_clients"] > 0, true))
	}},
}

func withConsole(url string, body func(context.Context, *pgx.Conn) error) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url+"?sslmode=disable")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return body(ctx, conn)
}
