package oci

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/headgate-io/headgate/internal/redact"
)

func (s *server) push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error {
	ctx = auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull, auth.ActionPush)
	have, err := s.has(ctx, d)
	if err != nil || have {
		return err
	}
	if !manifests[d.MediaType] {
		var body io.Reader = &exactly{from: content, d: d}
		if r, ok := content.(*io.SectionReader); ok {
			body = section{r}
		}
		return s.uploadError(s.oras.Blobs().Push(ctx, d, body))
	}
	text, err := readAll(content, maxManifest)
	if err != nil {
		return err
	}
	if got := d.Digest.Algorithm().FromBytes(text); got != d.Digest {
		return &ContentError{Digest: d.Digest, Size: d.Size, Got: got, Read: int64(len(text))}
	}
	return s.uploadError(s.oras.Manifests().Push(ctx, d, bytes.NewReader(text)))
}

// has reports whether the repository has d. A registry that does not tell has not.
func (s *server) has(ctx context.Context, d ocispec.Descriptor) (bool, error) {
	kind := "blobs/"
	if manifests[d.MediaType] {
		kind = "manifests/"
	}
	resp, err := s.ask(ctx, http.MethodHead, s.at(kind+d.Digest.String(), nil), accepted)
	if e, ok := errors.AsType[*StatusError](err); ok && (e.Status == http.StatusNotFound || slices.Contains(headless, e.Status)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	resp.Body.Close()
	return true, nil
}

func (s *server) tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	ctx = auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull, auth.ActionPush)
	d, text, err := readManifest(ctx, s, d.Digest.String(), d)
	if err != nil {
		return err
	}
	return s.uploadError(s.oras.PushReference(ctx, d, bytes.NewReader(text), tag))
}

// exactly reads content that is to be as long as d says. The end of what is longer
// is not read, so that no registry has all of d before that is known. Its Close is
// not ours to call.
type exactly struct {
	from io.Reader
	d    ocispec.Descriptor
	read int64
}

// Read implements [io.Reader].
func (e *exactly) Read(p []byte) (int, error) {
	left := e.d.Size - e.read
	if left == 0 {
		return 0, io.EOF
	}
	n, err := e.from.Read(p[:min(int64(len(p)), left)])
	if e.read += int64(n); e.read < e.d.Size || err == io.EOF {
		return n, err
	}
	if more, _ := io.ReadFull(e.from, make([]byte, 1)); more > 0 {
		return 0, &ContentError{Digest: e.d.Digest, Size: e.d.Size, Read: e.d.Size + 1}
	}
	return n, err
}

// A section is the content of an upload that can be sent again, even while the
// first attempt still reads it.
type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

func (s section) again() (io.ReadCloser, error) {
	return section{io.NewSectionReader(s.SectionReader, 0, s.Size())}, nil
}

// uploadError gives an error of the upload the form of this package's.
func (s *server) uploadError(err error) error {
	if e, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		out := &StatusError{Method: e.Method, URL: redact.URL(e.URL), Status: e.StatusCode}
		if len(e.Errors) > 0 {
			secrets := s.gate.secrets(&http.Request{URL: e.URL})
			out.Code, out.Message = plain(e.Errors[0].Code, secrets...), plain(e.Errors[0].Message, secrets...)
		} else if e.StatusCode == http.StatusBadRequest && e.URL.Scheme == "http" {
			out.Hint = maybeTLS
		}
		return s.gate.advise(out, e.URL, false)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return bare(e)
	}
	return err
}
