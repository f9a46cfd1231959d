// Package s3 reads buckets of S3-compatible stores and AWS (providers generic and aws) (reference A10).
package s3

import (
	"context"
	"errors"

	_ "github.com/minio/minio-go/v7"

	"github.com/headgate-io/headgate/bucket"
)

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	return nil, errors.ErrUnsupported
}
