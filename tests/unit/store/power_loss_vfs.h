// A disk that can lose its power, and one that refuses to be written. Every write goes to the real file, and into a
// list beside it that xSync() empties; so at any moment it is known what the platter would hold: what was synced, and
// of what was not any part at all.
#pragma once

#include <random>
#include <string>

namespace plumbline {

// Registers the VFS "power_loss" over the platform's, once, and forgets what an earlier disk held. With `syncs` false
// the disk lies: it answers every sync at once and does nothing, as a broken one does.
void reset_power_loss_vfs(bool syncs);

// Writes to `dir` (made) what the files of the VFS would hold if power failed now. A part of the writes since the last
// sync of each file, drawn at random, has reached the disk: none, the first few, or a scattered few, some of them torn.
void lose_power(const std::string& dir, std::mt19937_64& random);

// From now on every write and growth of a file fails with this code (SQLITE_FULL, SQLITE_IOERR_WRITE, ...); SQLITE_OK:
// none does.
void fail_writes(int code);

}  // namespace plumbline
