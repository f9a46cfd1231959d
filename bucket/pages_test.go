package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
)

// turns returns the pages that come one after another: token to next token,
// each with one object of the name of its token.
func turns(next map[string]string) func(context.Context, string) (bucket.Page, error) {
	return func(_ context.Context, token string) (bucket.Page, error) {
		p := bucket.Page{Next: next[token]}
		if token != "empty" {
			p.Objects = []bucket.Object{{Key: "of " + token}}
		}
		return p, nil
	}
}

// names returns what was listed, and how that ended.
func names(listing func(func(bucket.Object, error) bool)) (string, error) {
	var keys []string
	for o, err := range listing {
		if err != nil {
			return strings.Join(keys, ","), err
		}
		keys = append(keys, o.Key)
	}
	return strings.Join(keys, ","), nil
}

func TestPages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next map[string]string
		want string
	}{
		"one":              {nil, "of "},
		"three":            {map[string]string{"": "a", "a": "b"}, "of ,of a,of b"},
		"an empty between": {map[string]string{"": "empty", "empty": "b"}, "of ,of b"},
	} {
		if got, err := names(bucket.Pages(t.Context(), turns(c.next))); got != c.want || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// Circles are found out, however large.
func TestPagesInCircles(t *testing.T) {
	t.Parallel()
	circle := map[string]string{"": "0"}
	for i := range 100 {
		circle[fmt.Sprint(i)] = fmt.Sprint((i + 1) % 100)
	}
	for name, next := range map[string]map[string]string{
		"one page":      {"": "a", "a": "a"},
		"two":           {"": "a", "a": "b", "b": "a"},
		"empty pages":   {"": "empty", "empty": "empty"},
		"a late circle": {"": "a", "a": "b", "b": "c", "c": "d", "d": "c"},
		"a hundred":     circle,
	} {
		if _, err := names(bucket.Pages(t.Context(), turns(next))); err == nil || !strings.Contains(err.Error(), "repeats a page token") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One page is asked for ahead, and its error comes after the objects before it.
func TestPagesAhead(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 9)
	broken := errors.New("broken")
	listing := bucket.Pages(t.Context(), func(_ context.Context, token string) (bucket.Page, error) {
		asked <- token
		if token == "xx" {
			return bucket.Page{}, broken
		}
		return bucket.Page{Objects: []bucket.Object{{Key: "a"}, {Key: "b"}}, Next: token + "x"}, nil
	})
	n := 0
	for _, err := range listing {
		if err != nil {
			if !errors.Is(err, broken) || n != 4 {
				t.Errorf("after %d objects: %v", n, err)
			}
			continue
		}
		n++
		for want := map[int]int{1: 2, 3: 1}[n]; want > 0; want-- { // the next one is asked for while this one is used, and no other
			<-asked
		}
		if len(asked) > 0 {
			t.Errorf("after %d objects one more page was asked for", n)
		}
	}
	if n != 4 {
		t.Errorf("%d objects", n)
	}
}

// Nothing goes on when nobody listens any more.
func TestPagesStop(t *testing.T) {
	t.Parallel()
	ended := false
	for range bucket.Pages(t.Context(), func(ctx context.Context, token string) (bucket.Page, error) {
		if token == "" {
			return bucket.Page{Objects: []bucket.Object{{Key: "a"}}, Next: "x"}, nil
		}
		<-ctx.Done()
		ended = true // without a lock: the listing waits for it
		return bucket.Page{}, context.Cause(ctx)
	}) {
		break
	}
	if !ended {
		t.Error("a request outlives its listing")
	}
}
