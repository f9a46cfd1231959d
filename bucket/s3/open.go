package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/bucket"
)

const getObject = "get object"

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	q := query{doing: getObject, key: o.Key, header: map[string]string{"If-Match": `"` + o.ETag + `"`}}
	switch {
	case offset > 0 && offset == o.Size:
		return http.NoBody, nil // no range is empty
	case offset > 0:
		q.header["Range"] = fmt.Sprintf("bytes=%d-", offset)
	}
	resp, err := d.do(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := begin(resp, o, offset); err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %w", getObject, err)
	}
	return resp.Body, nil
}

// begin makes sure that the content of resp is that of o from offset on.
func begin(resp *http.Response, o bucket.Object, offset int64) error {
	if tag := bucket.ETag(resp.Header.Get("ETag")); tag != o.ETag {
		return fmt.Errorf("%w: it was %s, and is %s", bucket.ErrChanged, tagged(o.ETag), tagged(tag))
	}
	from := offset
	switch resp.StatusCode {
	case http.StatusOK:
		from = 0 // the range was ignored
	default:
		if want := fmt.Sprintf("bytes %d-%d/", offset, o.Size-1); offset == 0 || !strings.HasPrefix(resp.Header.Get("Content-Range"), want) {
			return errors.New("the answer is another part of it than was asked for")
		}
	}
	if resp.ContentLength >= 0 && resp.ContentLength != o.Size-from {
		return fmt.Errorf("the answer has %d bytes, but by its size it should have %d", resp.ContentLength, o.Size-from)
	}
	if from < offset {
		if _, err := io.CopyN(io.Discard, resp.Body, offset); err != nil {
			return fmt.Errorf("the answer breaks off: %w", err)
		}
	}
	return nil
}

// tagged shows an ETag, which is a store's text.
func tagged(tag string) string {
	if tag == "" {
		return "without ETag"
	}
	return bucket.Said(tag)
}
