package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/redisstore"
	"github.com/retrysafe/idempotency/storetest"
)

// cluster is three masters, and a replica of each.
type cluster struct {
	servers []*server
	nodes   []*redis.Client
	ids     []string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	for range 6 {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
			"--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration", "no")
		c.servers = append(c.servers, s)
		c.nodes = append(c.nodes, s.client(t))
		c.ids = append(c.ids, do(t, c.nodes[len(c.nodes)-1], "cluster", "myid").(string))
	}
	for i := range 3 {
		do(t, c.nodes[i], "cluster", "addslotsrange", i*5461, []int{5460, 10921, 16383}[i])
	}
	for _, s := range c.servers[1:] {
		do(t, c.nodes[0], "cluster", "meet", "127.0.0.1", s.port())
	}
	for i := 3; i < 6; i++ {
		require.Eventually(t, func() bool {
			return c.nodes[i].Do(context.Background(), "cluster", "replicate", c.ids[i-3]).Err() == nil
		}, startTimeout, 20*time.Millisecond, "a node hears of its master")
	}
	require.Eventually(t, c.healthy, startTimeout, 20*time.Millisecond)
	return c
}

// healthy: every node knows that every slot is served and by whom, and every
// replica is up to date.
func (c *cluster) healthy() bool {
	for i, n := range c.nodes {
		info := n.ClusterInfo(context.Background()).Val()
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") {
			return false
		}
		//lint:ignore SA1019 Redis 6.2 has no CLUSTER SHARDS
		slots, err := n.ClusterSlots(context.Background()).Result()
		if err != nil || len(slots) != 3 {
			return false
		}
		for _, s := range slots {
			if len(s.Nodes) != 2 {
				return false
			}
		}
		if i >= 3 && !strings.Contains(n.Info(context.Background(), "replication").Val(), "master_link_status:up") {
			return false
		}
	}
	return true
}

func (c *cluster) client(t *testing.T, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opt := &redis.ClusterOptions{}
	for _, s := range c.servers {
		opt.Addrs = append(opt.Addrs, s.addr)
	}
	for _, f := range change {
		f(opt)
	}
	var ready sync.Map // of channels by address
	channel := func(addr string) chan struct{} {
		c, _ := ready.LoadOrStore(addr, make(chan struct{}))
		return c.(chan struct{})
	}
	// With RouteByLatency go-redis 9.22 pings a node while it still sets it up,
	// and the race detector says so. So nobody dials before it has.
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-channel(addr):
			return new(net.Dialer).DialContext(ctx, network, addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	client := redis.NewClusterClient(opt)
	client.OnNewNode(func(node *redis.Client) {
		c := channel(node.Options().Addr)
		select {
		case <-c: // known from before
		default:
			close(c)
		}
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// calls returns how often the node has carried out a command.
func calls(t *testing.T, node *redis.Client, command string) int {
	t.Helper()
	for line := range strings.Lines(node.Info(t.Context(), "commandstats").Val()) {
		var n int
		if _, err := fmt.Sscanf(line, "cmdstat_"+command+":calls=%d,", &n); err == nil {
			return n
		}
	}
	return 0
}

// TestCluster starts one cluster for all that is to be seen on one; what moves
// slots and kills masters comes last.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	t.Run("contract", func(t *testing.T) {
		storetest.Run(t, stores(c.client(t)), storetest.WithRounds(20))
	})
	t.Run("check", func(t *testing.T) {
		require.NoError(t, redisstore.New(c.client(t), quiet()).Check(t.Context()))
	})
	t.Run("masters decide", c.mastersDecide)
	t.Run("a slot moves", c.slotMoves)
	t.Run("failover", c.failover)
}

// mastersDecide: whatever the client does with reads, no replica sees one of
// ours. The commands are counted at the replicas.
func (c *cluster) mastersDecide(t *testing.T) {
	reads := []string{"get", "getrange", "pttl", "eval", "evalsha", "eval_ro", "evalsha_ro", "exists"}
	for name, change := range map[string]func(*redis.ClusterOptions){
		"default":          func(*redis.ClusterOptions) {},
		"read only":        func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"route randomly":   func(o *redis.ClusterOptions) { o.RouteRandomly = true },
		"route by latency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
	} {
		t.Run(name, func(t *testing.T) {
			client := c.client(t, change)
			s := redisstore.New(client)
			before := map[string]int{}
			for _, cmd := range reads {
				for _, n := range c.nodes[3:] {
					before[cmd] += calls(t, n, cmd)
				}
			}
			for range 20 {
				everyCall(t, s, func() {})
				a := newClaim()
				a.Hold = time.Hour
				mustClaim(t, s, a, time.Millisecond) // and soon lapsed
				require.NoError(t, s.Wait(t.Context(), a.Key))
				require.True(t, mustLose(t, s, twin(a), lease).Lapsed)
				b := twin(a)
				b.Replaces = a.Token
				mustClaim(t, s, b, lease)
			}
			for _, cmd := range reads {
				after := 0
				for _, n := range c.nodes[3:] {
					after += calls(t, n, cmd)
				}
				require.Equal(t, before[cmd], after, "%s was sent to a replica", cmd)
			}
		})
	}
}

// slotMoves moves a slot from one master to another, key by key, and looks at
// every stage of it.
func (c *cluster) slotMoves(t *testing.T) {
	client := c.client(t)
	s := redisstore.New(client)
	// Three keys of one slot of the first master.
	inSlot, slot := c.keysOfOneSlot(t, s, 5)
	moved, left, fresh, small, big := inSlot[0], inSlot[1], inSlot[2], inSlot[3], inSlot[4]
	from, to := c.nodes[0], c.nodes[1]
	for _, a := range []idempotency.Claim{moved, left, small} {
		mustClaim(t, s, a, lease)
	}
	do(t, to, "cluster", "setslot", slot, "importing", c.ids[0])
	do(t, from, "cluster", "setslot", slot, "migrating", c.ids[1])
	migrate := func(key string) {
		do(t, from, "migrate", "127.0.0.1", c.servers[1].port(), key, 0, 5000)
	}
	migrate(s.RedisKey(moved.Key))

	mustClaim(t, s, fresh, lease) // ASK: it is new, and made at the new master
	mustClaim(t, s, fresh, lease)
	for _, a := range []idempotency.Claim{moved, left, fresh} {
		held(t, s, a)
		require.NoError(t, s.Extend(t.Context(), a, lease))
	}
	require.NoError(t, s.Complete(t.Context(), small, response([]byte("small")), ttl))
	// A large record of a key that has not moved: TRYAGAIN, for its temporary
	// key is made at the new master.
	require.NoError(t, s.Complete(t.Context(), left, response(largeBody()), ttl))
	require.NoError(t, s.Complete(t.Context(), moved, response(largeBody()), ttl))
	require.NoError(t, s.Complete(t.Context(), big, response(largeBody()), ttl)) // late, and in neither place
	require.NoError(t, s.Complete(t.Context(), left, response([]byte("other")), ttl))
	require.NoError(t, s.Release(t.Context(), fresh))
	mustClaim(t, s, twin(fresh), lease)

	for _, key := range do(t, from, "cluster", "getkeysinslot", slot, 100).([]any) {
		migrate(key.(string))
	}
	for _, n := range []*redis.Client{to, from, c.nodes[2]} {
		do(t, n, "cluster", "setslot", slot, "node", c.ids[1])
	}
	for _, a := range []idempotency.Claim{left, moved, big} { // MOVED
		require.Equal(t, response(largeBody()), mustLose(t, s, twin(a), lease).Response)
	}
	require.Equal(t, response([]byte("small")), mustLose(t, s, twin(small), lease).Response)
	mustLose(t, s, twin(fresh), lease)
}

// keysOfOneSlot returns attempts at n keys that share a slot of the first
// master.
func (c *cluster) keysOfOneSlot(t *testing.T, s *redisstore.Store, n int) ([]idempotency.Claim, int64) {
	t.Helper()
	bySlot := map[int64][]idempotency.Claim{}
	for {
		claims := make([]idempotency.Claim, 1000)
		pipe := c.nodes[0].Pipeline()
		for i := range claims {
			claims[i] = newClaim()
			pipe.ClusterKeySlot(t.Context(), s.RedisKey(claims[i].Key))
		}
		cmds, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		for i, cmd := range cmds {
			slot := cmd.(*redis.IntCmd).Val()
			bySlot[slot] = append(bySlot[slot], claims[i])
			if slot < 5461 && len(bySlot[slot]) == n {
				return bySlot[slot], slot
			}
		}
	}
}

// failover kills a master for good. What its replica has got stays, and the
// client finds its way.
func (c *cluster) failover(t *testing.T) {
	s := redisstore.New(c.client(t))
	var claims []idempotency.Claim
	for range 50 {
		a := newClaim()
		mustClaim(t, s, a, ttl)
		claims = append(claims, a)
	}
	for _, n := range c.nodes[:3] {
		require.NoError(t, n.Wait(t.Context(), 1, startTimeout).Err())
	}
	c.servers[2].kill()
	require.Eventually(t, func() bool {
		return strings.Contains(c.nodes[5].Info(context.Background(), "replication").Val(), "role:master") &&
			strings.Contains(c.nodes[0].ClusterInfo(context.Background()).Val(), "cluster_state:ok")
	}, startTimeout, 50*time.Millisecond)
	// All at once, as a service would.
	var wg sync.WaitGroup
	errs := make([]error, len(claims))
	for i, a := range claims {
		wg.Go(func() { errs[i] = eventually(t.Context(), func() error { return runOut(t.Context(), s, a) }) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// runOut finishes a run: nobody has taken its claim, and it can be recorded.
func runOut(ctx context.Context, s *redisstore.Store, a idempotency.Claim) error {
	if err := s.Extend(ctx, a, lease); err != nil {
		return err
	}
	if err := s.Complete(ctx, a, response(largeBody()), ttl); err != nil {
		return err
	}
	rec, err := s.Claim(ctx, twin(a), lease)
	if err == nil && (rec == nil || rec.Token != a.Token || rec.Response == nil) {
		return errors.New("the record is not there")
	}
	return err
}

// eventually repeats f, which fails while a cluster or a Sentinel is about to
// change over, until it gives nil. A lost claim is lost.
func eventually(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := f()
		if err == nil || errors.Is(err, idempotency.ErrClaimLost) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
