package clients

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// onClusters runs the body with go-redis's cluster client: directly, and through Weir.
func onClusters(t *testing.T, body func(t *testing.T, ctx context.Context, client *redis.ClusterClient, key string)) {
	t.Helper()
	text := os.Getenv("WEIR_CLUSTERS")
	if text == "" {
		t.Fatal("WEIR_CLUSTERS is not set: run `cargo xtask test clients:go`")
	}
	for _, part := range strings.Split(text, ";") {
		words := strings.Split(part, " ")
		for _, protocol := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s-resp%d", words[0], protocol), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				client := redis.NewClusterClient(&redis.ClusterOptions{
					Addrs:    []string{net.JoinHostPort(words[2], words[3])},
					Protocol: protocol,
				})
				defer client.Close()
				key := fmt.Sprintf("go:%d:%d:%s", os.Getpid(), keys.Add(1), strings.Split(t.Name(), "/")[0])
				body(t, ctx, client, key)
			})
		}
	}
}

func TestClusterKeysOfAllSlots(t *testing.T) {
	onClusters(t, func(t *testing.T, ctx context.Context, client *redis.ClusterClient, key string) {
		for n := range 300 {
			must(t, client.Set(ctx, fmt.Sprintf("%s:%d", key, n), n, time.Minute).Err())
		}
		for n := range 300 {
			value, err := client.Get(ctx, fmt.Sprintf("%s:%d", key, n)).Int()
			must(t, err)
			equal(t, value, n)
		}
		commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for n := range 300 {
				pipe.Incr(ctx, fmt.Sprintf("%s:%d", key, n))
			}
			return nil
		})
		must(t, err)
		for n, command := range commands {
			equal(t, command.(*redis.IntCmd).Val(), int64(n+1))
		}
	})
}

func TestClusterTransactionsOnOneSlot(t *testing.T) {
	onClusters(t, func(t *testing.T, ctx context.Context, client *redis.ClusterClient, key string) {
		tagged := "{" + key + "}"
		commands, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, tagged+":a", 1, 0)
			pipe.Incr(ctx, tagged+":a")
			return nil
		})
		must(t, err)
		equal(t, commands[1].(*redis.IntCmd).Val(), int64(2))
		must(t, client.Watch(ctx, func(tx *redis.Tx) error {
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, tagged+":a")
				return nil
			})
			return err
		}, tagged+":a"))
		value, err := client.Get(ctx, tagged+":a").Int()
		must(t, err)
		equal(t, value, 3)
	})
}

func TestClusterSubscriptions(t *testing.T) {
	onClusters(t, func(t *testing.T, ctx context.Context, client *redis.ClusterClient, key string) {
		subscription := client.Subscribe(ctx, key)
		defer subscription.Close()
		_, err := subscription.Receive(ctx)
		must(t, err)
		must(t, client.Publish(ctx, key, "hello").Err())
		message, err := subscription.ReceiveMessage(ctx)
		must(t, err)
		equal(t, message.Payload, "hello")
	})
}
