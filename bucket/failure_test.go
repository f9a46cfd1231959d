package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

// broken is a failure of Resolve.
type broken struct {
	change func(*memoryDriver)
	edit   func(*source.BucketSpec)
	limits artifact.Limits
	reason string // default: BucketOperationFailed
	is     error
	says   string
}

// failing checks how Resolve fails.
func (c broken) failing(t *testing.T) {
	t.Helper()
	d := newMemory("a", "1", "b", "22", "c/d", "333")
	if c.change != nil {
		c.change(d)
	}
	rev, state, err := d.origin(newBucket(c.edit), source.Env{Limits: c.limits}).Resolve(t.Context(), nil)
	if err == nil || rev.ID != "" || state != nil {
		t.Fatalf("%+v, %s, %v", rev, state, err)
	}
	reason := c.reason
	if reason == "" {
		reason = "BucketOperationFailed"
	}
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || step.Reason != reason || c.is != nil && !errors.Is(err, c.is) {
		t.Errorf("%v (%+v), want reason %s and %v", err, step, reason, c.is)
	}
	if !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "bucket '") {
		t.Errorf("%v, want %q", err, c.says)
	}
	if errors.Is(err, source.ErrInvalid) != errors.Is(c.is, source.ErrInvalid) {
		t.Errorf("%v: counts as a defect of the spec, or does not", err)
	}
}

// fails returns a change after which a listing fails after some objects.
func fails(after int, err error) func(*memoryDriver) {
	return func(d *memoryDriver) {
		d.onList = func(_ string, n int) error {
			if n == after {
				return err
			}
			return nil
		}
	}
}

func status(code int, word string) error {
	return &bucket.StatusError{Doing: "list objects", Status: code, Code: word}
}

func TestFailures(t *testing.T) {
	small := artifact.Limits{Entries: 2}
	for name, c := range map[string]broken{
		"field of another provider": {edit: func(s *source.BucketSpec) { s.ServiceAccountName = "robot" }, is: source.ErrInvalid, says: "spec.serviceAccountName: goes with provider aws or gcp or azure only"},
		"no token service":          {edit: func(s *source.BucketSpec) { s.STS = &source.BucketSTSSpec{Provider: "ldap", Endpoint: "sts:389"} }, is: source.ErrInvalid, reason: "URLInvalid", says: "spec.sts.endpoint: must begin with http://"},

		"no such bucket":                {change: fails(0, status(404, "NoSuchBucket")), is: fs.ErrNotExist, says: "there is no such bucket, check spec.bucketName and spec.endpoint: list objects: 404 Not Found: NoSuchBucket"},
		"no such bucket, hinted":        {change: fails(0, &bucket.StatusError{Doing: "list objects", Status: 404, Message: "Not here", Hint: "look there"}), is: fs.ErrNotExist, says: "bucket 'stuff': list objects: 404 Not Found: Not here: look there"},
		"refused":                       {change: fails(0, status(403, "AccessDenied")), reason: "AuthenticationFailed", is: fs.ErrPermission, says: "list objects: 403 Forbidden: AccessDenied"},
		"expired in the middle":         {change: fails(2, status(401, "ExpiredToken")), reason: "AuthenticationFailed", is: fs.ErrPermission, says: "after 2 objects: list objects: 401"},
		"busy in the middle":            {change: fails(1, status(503, "SlowDown")), says: "after 1 objects: list objects: 503 Service Unavailable: SlowDown"},
		"connection":                    {change: fails(1, io.ErrUnexpectedEOF), is: io.ErrUnexpectedEOF, says: "after 1 objects: unexpected EOF"},
		"no such bucket, with a prefix": {edit: prefix("c/"), change: fails(0, status(404, "NoSuchBucket")), is: fs.ErrNotExist, says: "there is no such bucket"},
		"refused, with a prefix":        {edit: prefix("c/"), change: fails(0, status(403, "AccessDenied")), reason: "AuthenticationFailed", is: fs.ErrPermission, says: "AccessDenied"},
		"broken, with a prefix":         {edit: prefix("c/"), change: fails(0, io.ErrUnexpectedEOF), is: io.ErrUnexpectedEOF, says: "unexpected EOF"},
		"login":                         {change: refuses(&source.StepError{Step: source.StepResolve, Reason: "InvalidSTSConfiguration", Err: errors.New("no token")}), reason: "InvalidSTSConfiguration", says: "no token"},
		"login without a reason":        {change: refuses(io.EOF), is: io.EOF, says: "EOF"},
		"endpoint":                      {edit: func(s *source.BucketSpec) { s.Endpoint = "https://store.example" }, change: endpoint, reason: "URLInvalid", is: source.ErrInvalid, says: "spec.endpoint"},
		"no provider":                   {edit: func(s *source.BucketSpec) { s.Provider = "ftp" }, is: source.ErrInvalid, says: `spec.provider "ftp": this program reads buckets with generic only`},
		"name with a path":              {edit: func(s *source.BucketSpec) { s.BucketName = "a/../b" }, is: source.ErrInvalid, says: "spec.bucketName"},
		"name with a query":             {edit: func(s *source.BucketSpec) { s.BucketName = "a?b" }, is: source.ErrInvalid, says: "spec.bucketName"},
		"no name":                       {edit: func(s *source.BucketSpec) { s.BucketName = "" }, is: source.ErrInvalid, says: "spec.bucketName"},
		"address":                       {edit: func(s *source.BucketSpec) { s.SecretRef = &source.LocalReference{Name: "creds"} }, reason: "AuthenticationFailed", is: fs.ErrNotExist, says: "spec.secretRef: secret default/creds"},

		"no ETag":           {change: lists(bucket.Object{Key: "x"}), says: `"x" has no ETag: the store must list an ETag for each`},
		"ETag of two":       {change: lists(bucket.Object{Key: "x", ETag: "a b"}), says: `"x" has an ETag "a b", which is none`},
		"ETag of lines":     {change: lists(bucket.Object{Key: "x", ETag: "a\nb c"}), says: `"x" has an ETag "a\nb c", which is none`},
		"ETag of bytes":     {change: lists(bucket.Object{Key: "x", ETag: "a\xff"}), says: `"x" has an ETag`},
		"less than no byte": {change: lists(bucket.Object{Key: "x", ETag: "e", Size: -1}), says: `"x" has -1 bytes`},
		"endless key":       {change: lists(bucket.Object{Key: strings.Repeat("k", 1<<16+1), ETag: "e"}), says: `has more than 4096 bytes`},
		"not in the prefix": {edit: func(s *source.BucketSpec) { s.Prefix = "c/" }, change: func(d *memoryDriver) {
			d.order = func(l []bucket.Object) { l[0].Key = "b/d" }
		}, says: `lists the object "b/d", which does not begin with spec.prefix`},

		"too many objects": {limits: small, is: nil, says: "more than 2 objects: raise the limit if the archive is trusted; or narrow spec.prefix or spec.ignore"},
		"too many bytes":   {limits: artifact.Limits{Bytes: 5}, says: "more than 5 bytes in all objects"},
		"too large":        {limits: artifact.Limits{FileBytes: 2}, says: `entry "c/d" has more than 2 bytes`},
		"too long":         {limits: artifact.Limits{NameBytes: 2}, says: `entry "c/d" has more than 2 bytes in its name`},
		"sum that overflows": {limits: artifact.Limits{Bytes: -1}, change: func(d *memoryDriver) {
			d.set("x", memoryObject{size: math.MaxInt64})
			d.set("y", memoryObject{size: math.MaxInt64})
		}, says: "bytes in all objects"},
		"default of bytes": {change: func(d *memoryDriver) { d.set("x", memoryObject{size: 16<<30 + 1}) }, says: `entry "x" has more than 17179869184 bytes`},

		"large rules":      {change: func(d *memoryDriver) { d.put(".sourceignore", strings.Repeat("#", 1<<20+1)) }, says: "object .sourceignore has 1048577 bytes, at most 1048576 are allowed"},
		"rules that grow":  {change: rules(func(io.ReadCloser) io.Reader { return strings.NewReader(strings.Repeat("#", 1<<20+1)) }), is: source.ErrMoved, says: "object .sourceignore: it has grown"},
		"rules cut short":  {change: rules(func(b io.ReadCloser) io.Reader { return io.LimitReader(b, 0) }), is: io.ErrUnexpectedEOF, says: "object .sourceignore: it ends after 0 of 6 bytes, 4 times"},
		"rules that break": {change: rules(func(io.ReadCloser) io.Reader { return brokenReader{} }), is: io.ErrClosedPipe, says: "object .sourceignore: "},
		"rules refused": {change: func(d *memoryDriver) {
			d.put(".sourceignore", "x")
			d.onOpen = func(bucket.Object, int64) error { return status(403, "AccessDenied") }
		}, reason: "AuthenticationFailed", is: fs.ErrPermission, says: "object .sourceignore: "},
		"rules without ETag":     {change: lists(bucket.Object{Key: ".sourceignore", Size: 1}), says: "object .sourceignore has no ETag"},
		"rules with a long line": {change: func(d *memoryDriver) { d.put(".sourceignore", strings.Repeat("a", 1<<16)) }, reason: "SourceIgnoreError", says: ".sourceignore:1: a line of more than 65536 bytes"},
		"rules of the spec":      {edit: ignoring("a\n" + strings.Repeat("b", 1<<16)), reason: "SourceIgnoreError", says: "spec.ignore:2: a line of more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.failing) })
	}
}

// brokenReader is a connection that breaks.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// refuses returns a change after which nobody can connect.
func refuses(err error) func(*memoryDriver) {
	return func(d *memoryDriver) { d.connect = func(context.Context, *bucket.Access) error { return err } }
}

// endpoint makes connecting read spec.endpoint.
func endpoint(d *memoryDriver) {
	d.connect = func(_ context.Context, a *bucket.Access) error {
		_, _, err := a.Endpoint()
		return err
	}
}

// lists returns a change after which the first object is listed as o.
func lists(o bucket.Object) func(*memoryDriver) {
	return func(d *memoryDriver) { d.order = func(l []bucket.Object) { l[0] = o } }
}

// rules returns a change after which there is .sourceignore, and read as body makes it.
func rules(body func(io.ReadCloser) io.Reader) func(*memoryDriver) {
	return func(d *memoryDriver) {
		d.put(".sourceignore", "*.png\n")
		d.content = func(_ bucket.Object, _ int64, b io.ReadCloser) io.ReadCloser { return io.NopCloser(body(b)) }
	}
}

// Limits are those of the artifact: what is ignored does not count.
func TestLimitsOfIgnored(t *testing.T) {
	d := newMemory("a", "1", "b.log", "22", "c.log", "333")
	o := d.origin(newBucket(ignoring("*.log")), source.Env{Limits: artifact.Limits{Entries: 1, Bytes: 1}})
	if _, _, err := o.Resolve(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// Each step has spec.timeout for itself, and says how far it came.
func TestTimeouts(t *testing.T) {
	stall := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for name, c := range map[string]struct {
		change func(*memoryDriver)
		reason string
		says   string
	}{
		"login": {func(d *memoryDriver) {
			d.connect = func(ctx context.Context, _ *bucket.Access) error { return stall(ctx) }
		},
			"AuthenticationFailed", "bucket 'stuff': log in: not done within 1m0s, raise spec.timeout if the origin is slow: "},
		"listing": {func(d *memoryDriver) { d.pause = 19 * time.Second }, "BucketOperationFailed",
			"bucket 'stuff': list objects: not done within 1m0s, raise spec.timeout if the origin is slow: after 3 objects: "},
		"rules": {func(d *memoryDriver) {
			d.put(".sourceignore", "a")
			d.onOpen = func(bucket.Object, int64) error { time.Sleep(time.Hour); return nil }
		}, "BucketOperationFailed", "read .sourceignore: not done within 1m0s"},
		"all in time": {func(d *memoryDriver) {
			d.put(".sourceignore", "zzz")
			d.pause = 9 * time.Second
			d.onOpen = func(bucket.Object, int64) error { time.Sleep(50 * time.Second); return nil }
		}, "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newMemory("a", "1", "b", "2", "c", "3", "d", "4")
			c.change(d)
			_, err := resolve(t, d, nil)
			step, _ := errors.AsType[*source.StepError](err)
			if c.says == "" {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if step == nil || step.Reason != c.reason || !strings.Contains(err.Error(), c.says) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v (%+v)", name, err, step)
			}
		})
	}
}

// A listing that the caller ends is none, even if the driver does not say so.
func TestCancelledListing(t *testing.T) {
	d := newMemory("a", "1", "b", "2")
	ctx, cancel := context.WithCancel(t.Context())
	d.silent = true
	d.onList = func(_ string, n int) error {
		if n == 1 {
			cancel()
		}
		return nil
	}
	if rev, _, err := d.origin(newBucket(nil), source.Env{}).Resolve(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", rev, err)
	}
}

func prefix(p string) func(*source.BucketSpec) { return func(s *source.BucketSpec) { s.Prefix = p } }

// A store that goes round in circles is noticed while it is listed.
func TestEndlessListing(t *testing.T) {
	for _, length := range []int{1, 2, 3, 7, 1000, 5000} {
		d := newMemory("a", "1")
		d.endless = func(i int) bucket.Object {
			return bucket.Object{Key: fmt.Sprintf("page/%d", i%length), ETag: "e"}
		}
		_, err := resolve(t, d, nil)
		if err == nil || !strings.Contains(err.Error(), "the store repeats its listing: object \"page/") {
			t.Errorf("%d: %v", length, err)
		}
		if d.listed > 4*length+4 {
			t.Errorf("%d: noticed after %d objects", length, d.listed)
		}
	}
}
