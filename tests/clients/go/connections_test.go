package clients

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestPublishAndSubscribe(t *testing.T) {
	everywhere(t, func(s *scene) {
		subscription := s.client.Subscribe(s.ctx, s.key+":a")
		defer subscription.Close()
		_, err := subscription.Receive(s.ctx)
		must(s, err)
		must(s, subscription.PSubscribe(s.ctx, s.key+":*"))
		_, err = subscription.Receive(s.ctx)
		must(s, err)
		receivers, err := s.client.Publish(s.ctx, s.key+":a", "hello").Result()
		must(s, err)
		equal(s, receivers, 2)
		for range 2 {
			message, err := subscription.ReceiveMessage(s.ctx)
			must(s, err)
			equal(s, message.Payload, "hello")
		}
		const count = 500
		for n := range count {
			must(s, s.client.Publish(s.ctx, s.key+":z", fmt.Sprint(n)).Err())
		}
		for n := range count {
			message, err := subscription.ReceiveMessage(s.ctx)
			must(s, err)
			equal(s, message.Payload, fmt.Sprint(n))
			equal(s, message.Pattern, s.key+":*")
		}
	})
}

func TestPasswords(t *testing.T) {
	everywhere(t, func(s *scene) {
		with := func(user, password string) error {
			return s.open(func(o *redis.Options) {
				o.Addr, o.Username, o.Password, o.MaxRetries = s.target.authAddress(), user, password, -1
			}).Get(s.ctx, s.key).Err()
		}
		if err := with("", s.target.password); err != redis.Nil {
			s.Fatalf("the right password: %v", err)
		}
		if err := with("default", s.target.password); err != redis.Nil {
			s.Fatalf("the right user and password: %v", err)
		}
		if err := with("", "wrong"); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			s.Fatalf("a wrong password: %v", err)
		}
		if err := with("", ""); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
			s.Fatalf("no password: %v", err)
		}
	})
}

func TestACutConnectionComesBack(t *testing.T) {
	everywhere(t, func(s *scene) {
		between := forward(s, s.target.address())
		client := s.open(func(o *redis.Options) {
			o.Addr, o.MaxRetries, o.MinRetryBackoff = between.listener.Addr().String(), 10, 10*time.Millisecond
		})
		must(s, client.Set(s.ctx, s.key, "before", 0).Err())
		subscription := client.Subscribe(s.ctx, s.key)
		defer subscription.Close()
		_, err := subscription.Receive(s.ctx)
		must(s, err)
		between.cut()
		value, err := client.Get(s.ctx, s.key).Result()
		must(s, err)
		equal(s, value, "before")
		messages := subscription.Channel()
		until(s, "a message after the cut", func() bool {
			must(s, s.client.Publish(s.ctx, s.key, "after").Err())
			select {
			case message := <-messages:
				return message.Payload == "after"
			case <-time.After(50 * time.Millisecond):
				return false
			}
		})
	})
}

func TestDatabasesAndNames(t *testing.T) {
	everywhere(t, func(s *scene) {
		seven := s.open(func(o *redis.Options) { o.DB, o.ClientName = 7, "suite-go" })
		must(s, seven.Set(s.ctx, s.key, "seven", 0).Err())
		if err := s.client.Get(s.ctx, s.key).Err(); err != redis.Nil {
			s.Fatalf("database 0 sees a key of database 7: %v", err)
		}
		name, err := seven.ClientGetName(s.ctx).Result()
		must(s, err)
		equal(s, name, "suite-go")
	})
}

// Every goroutine reads only values it wrote: no reply goes to the wrong client.
func TestManyClientsDoNotMixReplies(t *testing.T) {
	everywhere(t, func(s *scene) {
		client := s.open(func(o *redis.Options) { o.PoolSize = 20 })
		var group sync.WaitGroup
		failures := make(chan error, 40)
		for worker := range 40 {
			group.Go(func() {
				for round := range 50 {
					key := fmt.Sprintf("%s:%d", s.key, worker)
					want := fmt.Sprintf("%d-%d", worker, round)
					if err := client.Set(s.ctx, key, want, 0).Err(); err != nil {
						failures <- err
						return
					}
					got, err := client.Get(s.ctx, key).Result()
					if err != nil || got != want {
						failures <- fmt.Errorf("worker %d: got %q, want %q, %v", worker, got, want, err)
						return
					}
				}
			})
		}
		group.Wait()
		close(failures)
		for err := range failures {
			s.Fatal(err)
		}
	})
}
