// Package gcs reads buckets of Google Cloud Storage (provider gcp) (reference A10).
package gcs

import (
	"context"
	"errors"

	_ "google.golang.org/api/storage/v1"

	"github.com/headgate-io/headgate/bucket"
)

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	return nil, errors.ErrUnsupported
}
