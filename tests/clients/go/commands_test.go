package clients

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestPlainValues(t *testing.T) {
	everywhere(t, func(s *scene) {
		must(s, s.client.Set(s.ctx, s.key, "value", time.Minute).Err())
		value, err := s.client.Get(s.ctx, s.key).Result()
		must(s, err)
		equal(s, value, "value")
		must(s, s.client.HSet(s.ctx, s.key+":h", "a", 1, "b", 2).Err())
		fields, err := s.client.HGetAll(s.ctx, s.key+":h").Result()
		must(s, err)
		equal(s, fields["a"]+fields["b"], "12")
		must(s, s.client.ZAdd(s.ctx, s.key+":z", redis.Z{Score: 1.5, Member: "m"}).Err())
		scores, err := s.client.ZRangeWithScores(s.ctx, s.key+":z", 0, -1).Result()
		must(s, err)
		equal(s, scores[0].Score, 1.5)
		_, err = s.client.Get(s.ctx, s.key+":absent").Result()
		if !errors.Is(err, redis.Nil) {
			s.Fatalf("an absent key is redis.Nil, not %v", err)
		}
		_, err = s.client.Do(s.ctx, "NOSUCH", "x").Result()
		if err == nil || !strings.HasPrefix(err.Error(), "ERR unknown command 'NOSUCH'") {
			s.Fatalf("unknown command: %v", err)
		}
	})
}

func TestLargeAndBinaryValues(t *testing.T) {
	everywhere(t, func(s *scene) {
		for _, size := range []int{1 << 10, 1 << 20, 16 << 20} {
			value := make([]byte, size)
			_, _ = rand.Read(value)
			must(s, s.client.Set(s.ctx, s.key+"\r\n\x00", value, 0).Err())
			got, err := s.client.Get(s.ctx, s.key+"\r\n\x00").Bytes()
			must(s, err)
			if !bytes.Equal(got, value) {
				s.Fatalf("%d bytes came back changed", size)
			}
		}
		must(s, s.client.Del(s.ctx, s.key+"\r\n\x00").Err())
	})
}

func TestPipelineKeepsOrder(t *testing.T) {
	everywhere(t, func(s *scene) {
		commands, err := s.client.Pipelined(s.ctx, func(pipe redis.Pipeliner) error {
			for n := range 3000 {
				pipe.Echo(s.ctx, fmt.Sprint(n))
			}
			return nil
		})
		must(s, err)
		for n, command := range commands {
			equal(s, command.(*redis.StringCmd).Val(), fmt.Sprint(n))
		}
	})
}

func TestWatchTransactions(t *testing.T) {
	everywhere(t, func(s *scene) {
		const workers, rounds = 4, 15
		increment := func() error {
			for {
				err := s.client.Watch(s.ctx, func(tx *redis.Tx) error {
					current, err := tx.Get(s.ctx, s.key).Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(s.ctx, func(pipe redis.Pipeliner) error {
						pipe.Set(s.ctx, s.key, current+1, 0)
						return nil
					})
					return err
				}, s.key)
				if !errors.Is(err, redis.TxFailedErr) {
					return err
				}
			}
		}
		var group sync.WaitGroup
		failures := make(chan error, workers*rounds)
		for range workers {
			group.Go(func() {
				for range rounds {
					if err := increment(); err != nil {
						failures <- err
					}
				}
			})
		}
		group.Wait()
		close(failures)
		for err := range failures {
			s.Fatal(err)
		}
		total, err := s.client.Get(s.ctx, s.key).Int()
		must(s, err)
		equal(s, total, workers*rounds)
	})
}

func TestTransactionWithoutWatch(t *testing.T) {
	everywhere(t, func(s *scene) {
		var sum *redis.IntCmd
		_, err := s.client.TxPipelined(s.ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(s.ctx, s.key, 1, 0)
			sum = pipe.IncrBy(s.ctx, s.key, 41)
			return nil
		})
		must(s, err)
		equal(s, sum.Val(), 42)
	})
}

func TestBlockingPops(t *testing.T) {
	everywhere(t, func(s *scene) {
		done := make(chan []string, 1)
		go func() {
			popped, err := s.client.BLPop(s.ctx, 10*time.Second, s.key).Result()
			if err != nil {
				popped = []string{err.Error()}
			}
			done <- popped
		}()
		other := s.open(nil)
		until(s, "the pop to wait at the server", func() bool {
			info, err := other.Info(s.ctx, "clients").Result()
			return err == nil && strings.Contains(info, "blocked_clients:1")
		})
		must(s, other.RPush(s.ctx, s.key, "late").Err())
		equal(s, strings.Join(<-done, " "), s.key+" late")
		_, err := s.client.BLPop(s.ctx, time.Second, s.key).Result()
		if !errors.Is(err, redis.Nil) {
			s.Fatalf("a timeout is redis.Nil, not %v", err)
		}
	})
}

func TestScripts(t *testing.T) {
	everywhere(t, func(s *scene) {
		script := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1]) -- " + s.key)
		for n := 1; n <= 3; n++ {
			// Run tries EVALSHA, sees NOSCRIPT the first time, then sends EVAL.
			got, err := script.Run(s.ctx, s.client, []string{s.key}, 5).Int()
			must(s, err)
			equal(s, got, 5*n)
		}
		err := s.client.EvalSha(s.ctx, strings.Repeat("e", 40), nil).Err()
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			s.Fatalf("an unknown script: %v", err)
		}
	})
}

func TestStreams(t *testing.T) {
	everywhere(t, func(s *scene) {
		must(s, s.client.XGroupCreateMkStream(s.ctx, s.key, "group", "$").Err())
		go func() {
			time.Sleep(50 * time.Millisecond)
			s.client.XAdd(s.ctx, &redis.XAddArgs{Stream: s.key, Values: []string{"field", "value"}})
		}()
		streams, err := s.client.XReadGroup(s.ctx, &redis.XReadGroupArgs{
			Group: "group", Consumer: "one", Streams: []string{s.key, ">"}, Block: 10 * time.Second,
		}).Result()
		must(s, err)
		equal(s, streams[0].Messages[0].Values["field"].(string), "value")
		pending, err := s.client.XPending(s.ctx, s.key, "group").Result()
		must(s, err)
		equal(s, pending.Count, 1)
		acknowledged, err := s.client.XAck(s.ctx, s.key, "group", streams[0].Messages[0].ID).Result()
		must(s, err)
		equal(s, acknowledged, 1)
		err = s.client.XRead(s.ctx, &redis.XReadArgs{Streams: []string{s.key, "$"}, Block: 50 * time.Millisecond}).Err()
		if !errors.Is(err, redis.Nil) {
			s.Fatalf("an empty blocking read is redis.Nil, not %v", err)
		}
	})
}

func TestScanVisitsEverything(t *testing.T) {
	everywhere(t, func(s *scene) {
		_, err := s.client.Pipelined(s.ctx, func(pipe redis.Pipeliner) error {
			for n := range 300 {
				pipe.Set(s.ctx, fmt.Sprintf("%s:%d", s.key, n), n, 0)
			}
			return nil
		})
		must(s, err)
		found := map[string]bool{}
		iterator := s.client.Scan(s.ctx, 0, s.key+":*", 50).Iterator()
		for iterator.Next(s.ctx) {
			found[iterator.Val()] = true
		}
		must(s, iterator.Err())
		equal(s, len(found), 300)
	})
}
