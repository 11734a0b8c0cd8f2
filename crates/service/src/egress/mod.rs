//! What containers reach: each container with a profile has an [`egress::Guest`](hotcell_egress::Guest)
//! that answers its lookups and serves its connections.
