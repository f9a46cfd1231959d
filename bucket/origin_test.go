package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestRevision checks the test vectors of reference A4.
func TestRevision(t *testing.T) {
	d := newMemory()
	d.set("foo", memoryObject{etag: "bar"})
	d.set("bar", memoryObject{etag: "baz"})
	for want, d := range map[string]*memoryDriver{
		"5da7dfe37b54ea1d5ebffb643d67b09d888635b2fe031763fbb856ea5290fda0": d,
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": newMemory(),
	} {
		rev, err := resolve(t, d, nil)
		if err != nil || rev.ID != "sha256:"+want || rev.File != want+".tar.gz" {
			t.Errorf("%+v, %v", rev, err)
		}
	}
}

// TestRevisionDepends checks which changes affect the revision.
func TestRevisionDepends(t *testing.T) {
	base := func() *memoryDriver {
		d := newMemory("a/b", "1", "c.png", "2", "d/e/f", "3", "a-b", "1", "a/b/", "", "a0", "3", "é", "4", "Z", "5", "a.txt", "6")
		for i := range 300 {
			d.put(fmt.Sprintf("many/%d", i), fmt.Sprint(i))
		}
		return d
	}
	want, err := resolve(t, base(), nil)
	must(t, err)
	for name, c := range map[string]struct {
		change func(*memoryDriver)
		edit   func(*source.BucketSpec)
		same   bool
	}{
		"another ETag":       {change: func(d *memoryDriver) { d.put("a/b", "x") }},
		"another key":        {change: func(d *memoryDriver) { d.put("a/c", "1") }},
		"one less":           {change: func(d *memoryDriver) { d.remove("c.png") }},
		"listed backwards":   {change: func(d *memoryDriver) { d.order = slices.Reverse[[]bucket.Object] }, same: true},
		"listed in no order": {change: func(d *memoryDriver) { d.order = shuffle }, same: true},
		"marker":             {change: func(d *memoryDriver) { d.put("x/", ""); d.put("/", ""); d.put("a/", "") }, same: true},
		"ignored":            {change: func(d *memoryDriver) { d.put("x.log", "1") }, edit: ignoring("*.log"), same: true},
		"ignored by a file":  {change: func(d *memoryDriver) { d.put("x/y", "1"); d.put(".sourceignore", "/x/\n") }, same: true},
		"file below the top": {change: func(d *memoryDriver) { d.put("a/.sourceignore", "b\n") }},
		"more ignored":       {edit: ignoring("*.png")},
		"spec.ignore last":   {change: func(d *memoryDriver) { d.put(".sourceignore", "*.png\n") }, edit: ignoring("!c.png"), same: true},
		"no defaults":        {change: func(d *memoryDriver) { d.put(".git/config", "1") }},
		"prefix":             {edit: func(s *source.BucketSpec) { s.Prefix = "a/" }},
		"prefix of nothing":  {edit: func(s *source.BucketSpec) { s.Prefix = "zzz" }},
	} {
		d := base()
		if c.change != nil {
			c.change(d)
		}
		rev, err := resolve(t, d, c.edit)
		if err != nil || (rev.ID == want.ID) != c.same {
			t.Errorf("%s: %s, %v; was %s", name, rev.ID, err, want.ID)
		}
	}
}

func shuffle(l []bucket.Object) {
	rand.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
}

func ignoring(patterns string) func(*source.BucketSpec) {
	return func(s *source.BucketSpec) { s.Ignore = &patterns }
}

// TestRequests checks that an unchanged bucket costs one listing.
func TestRequests(t *testing.T) {
	d := newMemory("a", "1", "b", "2")
	o := d.origin(newBucket(nil), source.Env{})
	var state source.State
	step := func(name string, lists, opens int, renew string) source.Revision {
		t.Helper()
		rev, next, err := o.Resolve(t.Context(), state)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l, r := d.counts(); l != lists || r != opens {
			t.Errorf("%s: %d listings and %d reads, want %d and %d", name, l, r, lists, opens)
		}
		testenv.Equal(t, rev.Renew, renew, "%s: renew", name)
		state = next
		return rev
	}
	const changed = "changed: .sourceignore"
	first := step("first", 1, 0, "")
	step("unchanged", 1, 0, "")
	d.put(".sourceignore", "# nothing\n")
	step("rules appear", 1, 1, changed)
	step("unchanged with rules", 1, 0, "")
	d.set(".sourceignore", memoryObject{data: "# nothing\n", etag: "touched"})
	step("the same rules once more", 1, 1, "")
	d.put(".sourceignore", "# nothing much\n")
	testenv.Equal(t, step("other rules", 1, 1, changed).ID, first.ID, "revision")
	d.remove(".sourceignore")
	step("rules disappear", 1, 0, changed)
	d.put("a", "3")
	second := step("changed", 1, 0, "")
	_, err := o.Open(t.Context(), second)
	must(t, err)
	if l, r := d.counts(); l+r != 0 {
		t.Errorf("opened with %d listings and %d reads", l, r)
	}
	_, err = o.Open(t.Context(), second)
	must(t, err)
	if l, r := d.counts(); l != 1 || r != 0 {
		t.Errorf("opened again with %d listings and %d reads", l, r)
	}
	step("unchanged once more", 1, 0, "")
	_, err = o.Open(t.Context(), first)
	if !errors.Is(err, source.ErrMoved) || !strings.Contains(err.Error(), first.ID) || !strings.Contains(err.Error(), second.ID) {
		t.Errorf("another revision: %v", err)
	}
}

// TestForeignState checks that a state of another bucket, or one that cannot be decoded, is not used.
func TestForeignState(t *testing.T) {
	d := newMemory("a", "1", ".sourceignore", "b\n")
	_, state, err := d.origin(newBucket(nil), source.Env{}).Resolve(t.Context(), nil)
	must(t, err)
	if !strings.Contains(string(state), `"generic store.example/stuff"`) {
		t.Errorf("state %s", state)
	}
	d.counts()
	for name, c := range map[string]struct {
		state source.State
		edit  func(*source.BucketSpec)
		reads int
	}{
		"own":             {state, nil, 0},
		"same place":      {state, func(s *source.BucketSpec) { s.Provider = "generic"; s.Endpoint += "/" }, 0},
		"other bucket":    {state, func(s *source.BucketSpec) { s.BucketName = "other" }, 1},
		"other endpoint":  {state, func(s *source.BucketSpec) { s.Endpoint = "other.example" }, 1},
		"damaged":         {state[:len(state)-1], nil, 1},
		"of another size": {source.State(strings.Replace(string(state), `"b\n"`, `"b\nc"`, 1)), nil, 1},
		"not JSON":        {source.State("{{"), nil, 1},
	} {
		if _, _, err := d.origin(newBucket(c.edit), source.Env{}).Resolve(t.Context(), c.state); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if lists, opens := d.counts(); lists != 1 || opens != c.reads {
			t.Errorf("%s: %d listings, %d reads", name, lists, opens)
		}
	}
}

// TestStateHasNoSignature checks that a state contains no part of a signature.
func TestStateHasNoSignature(t *testing.T) {
	b := newBucket(func(s *source.BucketSpec) { s.Provider, s.Endpoint = "azure", "https://acc.example/?sv=1&sig=canary" })
	o := bucket.New(b, source.Env{}, map[string]bucket.Provider{"azure": newMemory("a", "1").provide})
	_, state, err := o.Resolve(t.Context(), nil)
	if err != nil || strings.Contains(string(state), "canary") {
		t.Errorf("%s, %v", state, err)
	}
}

// TestPrefixHidesRules checks that .sourceignore at the root is looked for separately if it
// is outside spec.prefix.
func TestPrefixHidesRules(t *testing.T) {
	for name, c := range map[string]struct {
		prefix string
		change func(*memoryDriver)
		lists  int
		files  string
		note   string
	}{
		"found":          {"dir/", func(d *memoryDriver) { d.put(".sourceignore", "*.log\n") }, 2, ".sourceignore dir/a", ""},
		"none":           {"dir/", func(*memoryDriver) {}, 2, "dir/a dir/b.log", ""},
		"others like it": {"dir/", func(d *memoryDriver) { d.put(".sourceignore.bak", "*\n"); d.put(".sourceignore/x", "*\n") }, 2, "dir/a dir/b.log", ""},
		"in the prefix":  {".source", func(d *memoryDriver) { d.put(".sourceignore", "*.log\n"); d.put(".source.log", "") }, 1, ".sourceignore", ""},
		"all of the key": {".sourceignore", func(d *memoryDriver) { d.put(".sourceignore", "*.log\n") }, 1, ".sourceignore", ""},
		"behind others": {"dir/", func(d *memoryDriver) {
			d.put(".sourceignore", "*.log\n")
			d.put(".sourceignore-", "")
			d.order = slices.Reverse[[]bucket.Object]
		}, 2, ".sourceignore dir/a", ""},
		"part of a name": {"di", func(*memoryDriver) {}, 2, "dir/a dir/b.log", ""},
		"must not be seen": {"dir/", func(d *memoryDriver) {
			d.onList = func(prefix string, _ int) error {
				if prefix == ".sourceignore" {
					return &bucket.StatusError{Doing: "list objects", Status: 403, Code: "AccessDenied"}
				}
				return nil
			}
		}, 2, "dir/a dir/b.log", "AccessDenied"},
	} {
		d := newMemory("dir/a", "1", "dir/b.log", "2", "other", "3")
		c.change(d)
		report, files := d.fetch(t, prefix(c.prefix))
		if lists, _ := d.counts(); lists != c.lists || files != c.files {
			t.Errorf("%s: %d listings, files %s", name, lists, files)
		}
		if notes := strings.Join(report.Notes, "; "); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

// fetch returns the report about an artifact of d, and its files.
func (d *memoryDriver) fetch(t *testing.T, edit func(*source.BucketSpec)) (source.Report, string) {
	t.Helper()
	o := d.origin(newBucket(edit), source.Env{})
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	report, files := written(t, o, rev)
	return report, strings.Join(files, " ")
}

func TestMarkersWithContent(t *testing.T) {
	d := newMemory("a/", "lost", "b/", "", "c/", "ignored", "a/x", "1")
	report, files := d.fetch(t, ignoring("/c"))
	if files != "a/x" || len(report.Notes) != 1 || report.Notes[0] != `the content of 1 directory markers is left out: "a/"` {
		t.Errorf("files %s, notes %q", files, report.Notes)
	}
}

// TestRulesMove checks that Resolve fails with ErrMoved if .sourceignore changes while it is
// read, and that the next Resolve succeeds.
func TestRulesMove(t *testing.T) {
	for name, change := range map[string]func(*memoryDriver){
		"replaced": func(d *memoryDriver) { d.put(".sourceignore", "b\n") },
		"removed":  func(d *memoryDriver) { d.remove(".sourceignore") },
	} {
		d := newMemory("a", "1", ".sourceignore", "a\n")
		d.onOpen = func(bucket.Object, int64) error { change(d); return nil }
		_, err := resolve(t, d, nil)
		testenv.ErrorIs(t, err, source.ErrMoved, name)
		d.onOpen = nil
		if _, err := resolve(t, d, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProgress checks that a long listing reports progress.
func TestProgress(t *testing.T) {
	d := newMemory()
	for i := range 12_000 {
		d.set(fmt.Sprint(i), memoryObject{etag: "e"})
	}
	var reports []source.Progress
	o := d.origin(newBucket(nil), source.Env{Progress: func(p source.Progress) { reports = append(reports, p) }})
	_, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	want := source.Progress{Object: "bucket/default/app", Phase: "listing", Done: 10_000, Unit: "objects"}
	if len(reports) != 2 || reports[0].Done != 5000 || reports[1] != want {
		t.Errorf("%+v", reports)
	}
}

// A failureCase is a test case for a failure of Resolve.
type failureCase struct {
	change func(*memoryDriver)
	edit   func(*source.BucketSpec)
	limits artifact.Limits
	reason string // default: BucketOperationFailed
	is     error
	says   string
}

// check checks how Resolve fails.
func (c failureCase) check(t *testing.T) {
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

func status(code int, errorCode string) error {
	return &bucket.StatusError{Doing: "list objects", Status: code, Code: errorCode}
}

func TestFailures(t *testing.T) {
	small := artifact.Limits{Entries: 2}
	for name, c := range map[string]failureCase{
		"field of another provider": {edit: func(s *source.BucketSpec) { s.ServiceAccountName = "robot" }, is: source.ErrInvalid, says: "spec.serviceAccountName: requires provider aws or gcp or azure"},
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

		"no ETag":       {change: lists(bucket.Object{Key: "x"}), says: `"x" has no ETag: the store must list an ETag for each`},
		"ETag of two":   {change: lists(bucket.Object{Key: "x", ETag: "a b"}), says: `"x" has an ETag "a b", which is none`},
		"ETag of lines": {change: lists(bucket.Object{Key: "x", ETag: "a\nb c"}), says: `"x" has an ETag "a\nb c", which is none`},
		"ETag of bytes": {change: lists(bucket.Object{Key: "x", ETag: "a\xff"}), says: `"x" has an ETag`},
		"endless key":   {change: lists(bucket.Object{Key: strings.Repeat("k", 1<<16+1), ETag: "e"}), says: `has more than 4096 bytes`},
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
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.check) })
	}
}

// A brokenReader fails like a broken connection.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// refuses returns a change after which connecting fails with err.
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

// rules returns a change that adds .sourceignore, and replaces its body.
func rules(body func(io.ReadCloser) io.Reader) func(*memoryDriver) {
	return func(d *memoryDriver) {
		d.put(".sourceignore", "*.png\n")
		d.content = func(_ bucket.Object, _ int64, b io.ReadCloser) io.ReadCloser { return io.NopCloser(body(b)) }
	}
}

// TestLimitsOfIgnored checks that ignored objects do not count for the limits.
func TestLimitsOfIgnored(t *testing.T) {
	d := newMemory("a", "1", "b.log", "22", "c.log", "333")
	o := d.origin(newBucket(ignoring("*.log")), source.Env{Limits: artifact.Limits{Entries: 1, Bytes: 1}})
	if _, _, err := o.Resolve(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestTimeouts checks that spec.timeout applies to each step separately, and that the error
// says how far the step got.
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

// TestCancelledListing checks that a listing fails if its context is canceled, even if the
// driver yields no error.
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
	_, _, err := d.origin(newBucket(nil), source.Env{}).Resolve(ctx, nil)
	testenv.ErrorIs(t, err, context.Canceled)
}

func prefix(p string) func(*source.BucketSpec) { return func(s *source.BucketSpec) { s.Prefix = p } }

// TestEndlessListing checks that a listing that repeats itself is detected.
func TestEndlessListing(t *testing.T) {
	for _, length := range []int{1, 2, 3, 7, 1000, 5000} {
		d := newMemory("a", "1")
		d.endless = func(i int) bucket.Object {
			return bucket.Object{Key: fmt.Sprintf("page/%d", i%length), ETag: "e"}
		}
		_, err := resolve(t, d, nil)
		testenv.ErrorSays(t, err, "the store repeats its listing: object \"page/", length)
		if d.listed > 4*length+4 {
			t.Errorf("%d: noticed after %d objects", length, d.listed)
		}
	}
}
