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

// A credential is used for four fifths of its life, and one without an end, or
// of a clock that is wrong, until it is refused.
func TestIssued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issued, life := 0, 100*time.Second
		i, err := NewIssued(t.Context(), func(context.Context) (source.Credential, error) {
			issued++
			c := source.Credential{Token: fmt.Sprint(issued)}
			if life != 0 {
				c.Expires = time.Now().Add(life)
			}
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		get := func(refused *source.Credential, want string) *source.Credential {
			t.Helper()
			c, err := i.Get(t.Context(), refused)
			if err != nil || c.Token != want {
				t.Fatalf("%v, %v; want %s", c, err, want)
			}
			return c
		}
		first := get(nil, "1")
		time.Sleep(79 * time.Second)
		get(nil, "1")
		time.Sleep(time.Second)
		life = 0
		second := get(nil, "2")
		time.Sleep(1000 * time.Hour)
		get(first, "2") // which was replaced meanwhile
		life = -time.Hour
		get(second, "3")
		get(nil, "3")
	})
}

// Many requests at once ask for one token; a request that is cancelled waits no longer.
func TestIssuedOnce(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	issued := 0
	i, err := NewIssued(t.Context(), func(context.Context) (source.Credential, error) {
		if issued++; issued == 2 {
			close(begun)
			<-release
		}
		return source.Credential{Token: fmt.Sprint("t", issued)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := i.Get(t.Context(), nil)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if c, err := i.Get(t.Context(), first); err != nil || c.Token != "t2" {
				t.Errorf("%v, %v", c, err)
			}
		})
	}
	<-begun
	close(release)
	all.Wait()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	if _, err := i.Get(ctx, nil); err == nil || err.Error() != "given up" {
		t.Error(err)
	}
	if issued != 2 {
		t.Errorf("%d tokens", issued)
	}
}
