package bucket_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

// A memoryDriver is a bucket in memory. Its hooks are called without its lock,
// so that they may change it in the midst of things.
type memoryDriver struct {
	mu      sync.Mutex
	objects map[string]memoryObject
	lists   []string // the prefixes that were listed
	opens   []string // the keys that were opened

	pause   time.Duration                                                         // before each object of a listing
	silent  bool                                                                  // a listing whose context ended ends without an error
	endless func(i int) bucket.Object                                             // what is listed, for ever
	listed  int                                                                   // objects
	order   func([]bucket.Object)                                                 // rearranges a listing; nil: by key
	onList  func(prefix string, n int) error                                      // before the object n of a listing, and at its end
	onOpen  func(o bucket.Object, offset int64) error                             // before an object is opened
	content func(o bucket.Object, offset int64, body io.ReadCloser) io.ReadCloser // in place of the body
	connect func(ctx context.Context, a *bucket.Access) error                     // while a driver is made
}

// A memoryObject is one object of a memoryDriver.
type memoryObject struct {
	data string
	etag string // default: the sum of data, as most stores have it
	size int64  // as it is listed; default: as it is
}

// newMemory returns a bucket with objects KEY, DATA, …
func newMemory(keyData ...string) *memoryDriver {
	d := &memoryDriver{objects: map[string]memoryObject{}}
	for i := 0; i < len(keyData); i += 2 {
		d.put(keyData[i], keyData[i+1])
	}
	return d
}

func (d *memoryDriver) put(key, data string) { d.set(key, memoryObject{data: data}) }

func (d *memoryDriver) set(key string, o memoryObject) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[key] = o
}

func (d *memoryDriver) remove(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, key)
}

// counts returns how many listings and reads there were since it was asked last.
func (d *memoryDriver) counts() (lists, opens int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lists, opens = len(d.lists), len(d.opens)
	d.lists, d.opens = nil, nil
	return lists, opens
}

func (o memoryObject) object(key string) bucket.Object {
	out := bucket.Object{Key: key, ETag: o.etag, Size: int64(len(o.data))}
	if out.ETag == "" {
		sum := md5.Sum([]byte(o.data))
		out.ETag = hex.EncodeToString(sum[:])
	}
	if o.size != 0 {
		out.Size = o.size
	}
	return out
}

// List implements [bucket.Driver].
func (d *memoryDriver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		list := d.listing(prefix)
		for i := 0; ; i++ {
			err := d.before(ctx, prefix, i)
			switch {
			case ctx.Err() != nil && d.silent:
				return
			case err != nil:
				yield(bucket.Object{}, err)
				return
			case d.endless != nil:
				list = append(list[:0], d.endless(i))
			case i == len(list):
				return
			default:
				list[0] = list[i]
			}
			if d.listed++; !yield(list[0], nil) {
				return
			}
		}
	}
}

// before is what happens before the object i of a listing.
func (d *memoryDriver) before(ctx context.Context, prefix string, i int) error {
	select {
	case <-time.After(d.pause):
	case <-ctx.Done():
	}
	if d.onList != nil {
		if err := d.onList(prefix, i); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (d *memoryDriver) listing(prefix string) (list []bucket.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lists = append(d.lists, prefix)
	for _, key := range slices.Sorted(maps.Keys(d.objects)) {
		if strings.HasPrefix(key, prefix) {
			list = append(list, d.objects[key].object(key))
		}
	}
	if d.order != nil && len(list) > 0 {
		d.order(list)
	}
	return list
}

// Open implements [bucket.Driver].
func (d *memoryDriver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	if d.onOpen != nil {
		if err := d.onOpen(o, offset); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	d.opens = append(d.opens, o.Key)
	now, ok := d.objects[o.Key]
	d.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !ok:
		return nil, &bucket.StatusError{Doing: "read " + o.Key, Status: 404, Code: "NoSuchKey"}
	case now.object(o.Key).ETag != o.ETag:
		return nil, &bucket.StatusError{Doing: "read " + o.Key, Status: 412, Code: "PreconditionFailed"}
	case offset > int64(len(now.data)):
		return nil, fmt.Errorf("offset %d of %d: %w", offset, len(now.data), fs.ErrInvalid)
	}
	body := io.NopCloser(strings.NewReader(now.data[offset:]))
	if d.content != nil {
		return d.content(o, offset, body), nil
	}
	return body, nil
}

// provide is a [bucket.Provider].
func (d *memoryDriver) provide(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	if d.connect != nil {
		if err := d.connect(ctx, a); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// origin returns the origin of b, whose bucket is d.
func (d *memoryDriver) origin(b *source.Bucket, env source.Env) *bucket.Origin {
	return bucket.New(b, env, map[string]bucket.Provider{"generic": d.provide})
}

// newBucket returns a Bucket, with its spec edited.
func newBucket(edit func(*source.BucketSpec)) *source.Bucket {
	b := &source.Bucket{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "Bucket",
			Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{BucketName: "stuff", Endpoint: "store.example", Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	if edit != nil {
		edit(&b.Spec)
	}
	return b
}

// resolve resolves a bucket without an earlier state.
func resolve(t *testing.T, d *memoryDriver, edit func(*source.BucketSpec)) (source.Revision, error) {
	t.Helper()
	rev, _, err := d.origin(newBucket(edit), source.Env{Limits: artifact.Limits{}}).Resolve(t.Context(), nil)
	return rev, err
}

// walk visits the files of a tree.
func walk(t *testing.T, tree fs.FS, visit func(name string)) {
	t.Helper()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			visit(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// serving returns the URL of a server that answers everything with text.
func serving(t *testing.T, text string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }))
	t.Cleanup(server.Close)
	return server.URL
}

// ask sends a request with the client of a.
func ask(ctx context.Context, a *bucket.Access, server string) error {
	at, err := url.Parse(server)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server, nil)
	if err != nil {
		return err
	}
	resp, err := a.Client(at, a.Way).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
