// Values of the run's store, and answers to requests in the protocol of c10d's TCPStore.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace strata::group {

// Reader of a request from received bytes.
class StoreRequestReader {
 public:
  StoreRequestReader(const std::string& bytes, std::size_t begin) : bytes_(bytes), at_(begin) {}
  // True if bytes of the request are missing (`incomplete`, nothing is read) or no rank sends such a request (`wrong`).
  bool incomplete = false;
  bool wrong = false;
  std::size_t at() const { return at_; }

  template <typename Number>
  Number number() {
    Number number{};
    if (incomplete || wrong || bytes_.size() - at_ < sizeof number) {
      incomplete = true;
      return number;
    }
    std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }
  std::string text();
  // Returns the number of keys that follow.
  std::uint64_t count();

 private:
  const std::string& bytes_;
  std::size_t at_;
};

// Appends a number to an answer.
template <typename Number>
void put_number(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

class StoreValues {
 public:
  // Carries out a request and appends the answer to `out`; does nothing if the request is incomplete. Returns false for
  // a request that ends the connection.
  bool answer(StoreRequestReader& in, std::string& out);

 private:
  std::string value_of(const std::string& key) const;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& wanted);
  std::int64_t add(const std::string& key, std::int64_t more);

  std::map<std::string, std::string> values_;
};

}  // namespace strata::group
