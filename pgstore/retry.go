package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	maxTries   = 8
	firstPause = time.Millisecond
)

// errUnsettled says that the row changed between two looks at it.
var errUnsettled = errors.New("the record kept changing")

// retry calls f again while the server asks for it (serialization failure,
// deadlock), while the row changes under it, and where nothing had been sent
// yet; 8 times at most, which takes about a tenth of a second.
func retry(ctx context.Context, f func() error) error {
	pause := time.Duration(0)
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == maxTries || !isTransient(err) {
			return err
		}
		if pause > 0 {
			timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // spreads the retries, guards nothing
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return err
			}
		}
		pause = max(firstPause, 2*pause)
	}
}

func isTransient(err error) bool {
	if errors.Is(err, errUnsettled) {
		return true
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code == "40001" || server.Code == "40P01"
	}
	var connect *pgconn.ConnectError
	return pgconn.SafeToRetry(err) && !errors.As(err, &connect)
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgstore: %s: %w", op, err)
}

// exec executes one statement and says how many rows it touched.
func (t *table) exec(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = retry(ctx, func() error {
		tag, err := t.pool.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}
