package bucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A token is used for four fifths of its life, one without an end until it is refused.
func TestLifeOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issued, life := 0, 100*time.Second
		b, err := NewBearer(t.Context(), func(context.Context) (source.Credential, error) {
			issued++
			c := source.Credential{Token: fmt.Sprint(issued)}
			if life > 0 {
				c.Expires = time.Now().Add(life)
			}
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		get := func(refused, want string) {
			t.Helper()
			if token, err := b.token(t.Context(), refused); err != nil || token != want {
				t.Fatalf("%s, %v; want %s", token, err, want)
			}
		}
		get("", "1")
		time.Sleep(79 * time.Second)
		get("", "1")
		time.Sleep(time.Second)
		life = 0
		get("", "2")
		time.Sleep(1000 * time.Hour)
		get("1", "2") // which was replaced meanwhile
		get("2", "3")
	})
}

// Many requests at once ask for one token; a request that is cancelled waits no longer.
func TestRequestsShareToken(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	issued := 0
	b, err := NewBearer(t.Context(), func(context.Context) (source.Credential, error) {
		if issued++; issued == 2 {
			close(begun)
			<-release
		}
		return source.Credential{Token: fmt.Sprint("t", issued)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if token, err := b.token(t.Context(), "t1"); err != nil || token != "t2" {
				t.Errorf("%s, %v", token, err)
			}
		})
	}
	<-begun
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	if _, err := b.token(ctx, ""); err == nil || err.Error() != "given up" {
		t.Error(err)
	}
	close(release)
	all.Wait()
	if issued != 2 {
		t.Errorf("%d tokens", issued)
	}
}
