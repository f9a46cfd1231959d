package oci

import (
	"errors"
	"io/fs"
	"net/url"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/headgate-io/headgate/internal/redact"
)

// uploadError gives an error of the upload the form of this package's.
func (s *server) uploadError(err error) error {
	if e, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		out := &StatusError{Method: e.Method, URL: redact.URL(e.URL), Status: e.StatusCode}
		if len(e.Errors) > 0 {
			out.Code, out.Message = plain(e.Errors[0].Code), plain(e.Errors[0].Message)
		}
		return s.gate.advise(out)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return bare(e)
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return errors.Join(err, fs.ErrNotExist)
	}
	return err
}
