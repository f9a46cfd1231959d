package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
)

// An inventory is a listing as it came, and what it says of .sourceignore.
type inventory struct {
	list   *listing
	ignore *Object
}

// Weight tells the bytes of a listing: a large one is for those who wait for it alone.
func (i inventory) Weight() int64 { return i.list.size }

// listed returns what list lists, asked for once for all objects that ask for
// the same with the same credentials.
func (o *Origin) listed(ctx context.Context, s *snapshot, prefix string, list func(context.Context) (inventory, error)) (inventory, error) {
	if o.env.Share == nil {
		return list(ctx)
	}
	who, err := s.access.identity(o.bucket.Metadata.Namespace)
	if err != nil {
		return inventory{}, err
	}
	answer, err := o.env.Share.Do(ctx, "bucket "+who+" "+prefix, o.since(), func(ctx context.Context) (any, error) {
		defer s.access.close() // nobody else may use the connection after this
		return list(ctx)
	})
	if err != nil {
		return inventory{}, err
	}
	i := answer.(inventory)
	i.list = i.list.copy()
	return i, nil
}

// since returns how old a listing may be: an origin that looks again does so
// because what it saw is not what there is.
func (o *Origin) since() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looked {
		return time.Now()
	}
	o.looked = true
	return o.env.Since
}

// identity tells the bucket, and who asks it as whom, from others: all of the
// spec that decides about that, in its namespace, and the content of its Secrets.
func (a *Access) identity(namespace string) (string, error) {
	spec := *a.Spec
	spec.Prefix, spec.Ignore, spec.Suspend, spec.Interval, spec.Timeout = "", nil, false, 0, 0
	text, err := json.Marshal(spec)
	h := sha256.New()
	transport.Note(h, namespace, string(text), a.Way.Settings, a.STSWay.Settings)
	a.Secret.Note(h)
	a.STS.Note(h)
	return string(h.Sum(nil)), err
}
